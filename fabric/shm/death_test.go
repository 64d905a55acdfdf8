package shm

import (
	"context"
	"math/rand/v2"

	"github.com/sluice-storage/sluice/fabric"
)

// traffic posts a bit of everything until the connection ends. count, if not nil, hears of every
// request and every completion.
func (n *end) traffic(ctx context.Context, rng *rand.Rand, count func(posted, completed int)) {
	_ = ctx
	_ = rng
	_ = count
	_ = fabric.OpSend
}
