package regcache

import (
	"errors"
	"runtime"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// Costs are the time of one registration and its end, Each + pages x Page, and of copying one page.
type Costs struct{ Each, Page, Copy time.Duration }

func (c Costs) known() bool { return c.Copy > 0 }

func (c Costs) registering(e extent) time.Duration {
	return c.Each + time.Duration(e.pages())*c.Page
}

func (c Costs) copying(bytes int64) time.Duration {
	return time.Duration(bytes) * c.Copy / pageBytes
}

// gapPages is the most pages in a gap that cost less than one more registration.
func (c Costs) gapPages() uintptr { return uintptr((c.Each - 1) / c.Page) }

// PaysFrom is the least number of bytes whose registration costs no more than to copy them copies
// times; 0: it always costs more.
func (c Costs) PaysFrom(copies int) int64 {
	gain := time.Duration(copies)*c.Copy - c.Page // by the page
	if gain <= 0 {
		return 0
	}
	return int64((c.Each+gain-1)/gain) * pageBytes
}

// Measure finds the costs of a domain. It takes some tens of milliseconds.
func Measure(d fabric.Domain) (Costs, error) {
	// As much is copied as a core's own caches do not hold, because the data of a transfer is not
	// in them either.
	const many, copied = 512, 2 << 20
	scratch := make([]byte, 2*copied)
	clear(scratch) // so that all pages are there
	var pin runtime.Pinner
	pin.Pin(&scratch[0])
	defer pin.Unpin()
	one, all, copying := longest, longest, longest
	for round := range rounds {
		if round > 0 {
			time.Sleep(pause)
		}
		err := errors.Join(
			best(&one, func() error { return register(d, scratch[:pageBytes]) }),
			best(&all, func() error { return register(d, scratch[:many*pageBytes]) }),
			best(&copying, func() error {
				copy(scratch[:copied], scratch[copied:])
				return nil
			}))
		if err != nil {
			return Costs{}, errs.Wrap("regcache.Measure", d.Caps().Provider, err)
		}
	}
	// Where the difference is lost in the noise a page still costs something: gaps that are
	// registered along are no longer than what was measured.
	page := max((all-one)/(many-1), one/many, 1)
	return Costs{Each: max(one-page, 1), Page: page,
		Copy: max(copying/(copied/pageBytes), 1)}, nil
}

func register(d fabric.Domain, memory []byte) error {
	r, err := d.Register(memory)
	if err != nil {
		return err
	}
	return r.Close()
}

// A host that is busy disturbs all that is measured within some milliseconds: so there are several
// rounds, with pauses between them.
const (
	rounds  = 5
	pause   = 4 * time.Millisecond
	longest = time.Duration(1 << 62)
)

// best lowers least to the shortest of several times: longer ones were disturbed.
func best(least *time.Duration, run func() error) error {
	for range 5 {
		start := time.Now()
		if err := run(); err != nil {
			return err
		}
		*least = min(*least, time.Since(start))
	}
	return nil
}

// measure finds the costs, unless they were given. If that fails nothing is registered.
func (c *Cache) measure() {
	c.costs = c.opts.Costs
	if c.costs.known() {
		return
	}
	provider := c.domain.Caps().Provider
	costs, err := Measure(c.domain)
	if err != nil {
		c.opts.Logger.Warn("memory of this program cannot be registered: its data is copied",
			"provider", provider, "err", err)
		return
	}
	c.costs = costs
	c.opts.Logger.Info("cost of registering memory", "provider", provider, "each", costs.Each,
		"page", costs.Page, "copying a page", costs.Copy, "pays from", costs.PaysFrom(1),
		"pays for memory that comes again from", costs.PaysFrom(uses))
}
