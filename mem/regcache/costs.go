package regcache

import (
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// Measure finds the costs of a domain by registering parts of scratch, which must be memory that
// the domain takes, 64 pages at least, and present. It takes a few milliseconds.
func Measure(d fabric.Domain, scratch []byte) (Costs, error) {
	const many, rounds = 64, 9
	if len(scratch) < many*pageBytes {
		return Costs{}, errs.Newf(errs.Invalid, "regcache.Measure", "", "%d bytes", len(scratch))
	}
	one, err := best(d, scratch[:pageBytes], rounds)
	if err != nil {
		return Costs{}, err
	}
	all, err := best(d, scratch[:many*pageBytes], rounds)
	if err != nil {
		return Costs{}, err
	}
	page := max((all-one)/(many-1), 1) // a domain that costs nothing by the page costs something
	return Costs{Each: max(one-page, 1), Page: page}, nil
}

// best is the shortest time of several: what is longer was disturbed.
func best(d fabric.Domain, memory []byte, rounds int) (time.Duration, error) {
	least := time.Duration(1 << 62)
	for range rounds {
		start := time.Now()
		r, err := d.Register(memory)
		if err == nil {
			err = r.Close()
		}
		if err != nil {
			return 0, errs.Wrap("regcache.Measure", d.Caps().Provider, err)
		}
		least = min(least, time.Since(start))
	}
	return least, nil
}
