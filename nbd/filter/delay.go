package filter

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/nbd"
)

// newDelay is delay[:all=TIME][:read=TIME][:write=TIME]...: calls wait before they begin. A kind of
// call of its own goes before all.
func newDelay(p *params) wrapper {
	all := p.duration("all", 0)
	var each [prefetch + 1]time.Duration
	for i, name := range callNames() {
		each[i] = p.duration(name, all)
	}
	return func(exp nbd.Export, _ Options) (nbd.Export, error) {
		return newAround(exp, func(ctx context.Context, r request, next func() error) error {
			if err := waitFor(ctx, each[r.call]); err != nil {
				return err
			}
			return next()
		}, true), nil
	}
}
