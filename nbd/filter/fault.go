package filter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
)

// faultKinds are the errors that can be asked for, by the names of the protocol.
func faultKinds() map[string]errs.Kind {
	return map[string]errs.Kind{"EIO": errs.IO, "ENOSPC": errs.NoSpace, "EPERM": errs.Perm,
		"EINVAL": errs.Invalid, "ESHUTDOWN": errs.Shutdown}
}

// newFault is fault[:rate=0..1][:error=E][:op=read+write...][:from=OFF][:to=OFF][:after=N]
// [:count=N][:seed=N]: calls that touch the range fail with a probability, the first N of them do
// not, and after so many failures no more do. The same seed makes the same choices for the same
// calls in the same order.
func newFault(p *params) wrapper {
	rate, kind := p.chance("rate", 1), errs.IO
	p.take("error", func(v string) error {
		var ok bool
		if kind, ok = faultKinds()[strings.ToUpper(v)]; !ok {
			return fmt.Errorf("choose of %s", strings.Join(faultNames(), ", "))
		}
		return nil
	})
	which := p.calls("op")
	from, to := p.bytes("from", 0), p.bytes("to", 1<<63-1)
	after, count := p.count("after", 0), p.count("count", 1<<64-1)
	seed := p.count("seed", rand.Uint64())
	if from >= to {
		p.fail(fmt.Errorf("nothing lies between from=%d and to=%d", from, to))
	}
	return func(exp nbd.Export, o Options) (nbd.Export, error) {
		d := &dice{rng: rand.New(rand.NewPCG(seed, 0)), rate: rate, after: after, count: count}
		o.Logger.Info("nbd: requests will fail, as was asked for", "export", o.Name, "seed", seed)
		return newAround(exp, func(_ context.Context, r request, next func() error) error {
			if !which[r.call] || r.off >= to || r.off+r.length <= from || !d.fails() {
				return next()
			}
			err := errs.Newf(kind, "filter.fault", o.Name, "as was asked for")
			if r.call == read {
				return &nbd.OffsetError{Off: max(r.off, from), Err: err}
			}
			return err
		}, false), nil
	}
}

func faultNames() []string {
	var names []string
	for name := range faultKinds() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// dice decides which calls fail.
type dice struct {
	rate float64

	mu           sync.Mutex
	rng          *rand.Rand
	after, count uint64 // calls that do not fail yet, and that still may
}

func (d *dice) fails() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.after > 0 {
		d.after--
		return false
	}
	if d.count == 0 || d.rng.Float64() >= d.rate {
		return false
	}
	d.count--
	return true
}
