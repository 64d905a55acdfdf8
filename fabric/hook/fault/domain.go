package fault

import (
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/hook"
)

// Options of a failing domain.
type Options struct {
	// Seed decides for rules with OneIn.
	Seed uint64

	// Rules are there from the start. Inject adds more.
	Rules []Rule
}

// Domain is a domain with rules. Safe for concurrent use.
type Domain struct {
	*hook.Domain
	ruled atomic.Bool // there are rules

	mu     sync.Mutex
	rng    *rand.Rand
	rules  []*Rule
	eps    map[*endpoint]struct{} // neither broken nor closed
	fired  int
	closed bool
}

// New wraps a domain. It panics when a rule asks for what the contract forbids.
func New(inner fabric.Domain, opts Options) *Domain {
	d := &Domain{
		rng: rand.New(rand.NewPCG(opts.Seed, 0x6661756c74)), eps: map[*endpoint]struct{}{},
	}
	for _, r := range opts.Rules {
		d.Inject(r)
	}
	d.Domain = hook.Wrap(inner, hook.Layer{
		Register: d.register, Connect: d.connect, Endpoint: d.newEndpoint,
		Region: d.newRegion, Completed: completed,
	})
	return d
}

// Inject adds a rule behind the others. The function that it returns takes it away again.
func (d *Domain) Inject(r Rule) (remove func()) {
	r = r.withDefaults()
	r.validate()
	rule := &r
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rules = append(d.rules, rule)
	d.ruled.Store(true)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.removeLocked(rule)
	}
}

func (d *Domain) removeLocked(rule *Rule) {
	for i, r := range d.rules {
		if r == rule {
			d.rules = append(d.rules[:i:i], d.rules[i+1:]...)
			d.ruled.Store(len(d.rules) > 0)
			return
		}
	}
}

// Break cuts every connection whose endpoint's name contains name, at once, and tells how many
// those were. It returns when their pending requests have completed.
func (d *Domain) Break(name string) int {
	d.mu.Lock()
	var hit []*endpoint
	for e := range d.eps {
		if strings.Contains(e.Name(), name) {
			hit = append(hit, e)
		}
	}
	d.mu.Unlock()
	count := 0
	for _, e := range hit {
		if e.cut("cut by a test") {
			count++
		}
	}
	return count
}

// Fired is how often rules have fired.
func (d *Domain) Fired() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fired
}

// Close implements fabric.Domain.
func (d *Domain) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	return d.Domain.Close()
}

// ask finds the rule that fires for an event; the zero Rule when there is none. An operation is
// counted by every rule before that one.
func (d *Domain) ask(ev event) Rule {
	if !d.ruled.Load() {
		return Rule{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.rules {
		if !r.asks(&ev, func(n int) bool { return d.rng.IntN(n) == 0 }) {
			continue
		}
		d.fired++
		fired := *r
		if r.Count > 0 {
			if r.Count--; r.Count == 0 {
				d.removeLocked(r)
			}
		}
		return fired
	}
	return Rule{}
}

// refusal is the error of a rule that refuses.
func (r *Rule) refusal(op, name string) error {
	if r.Kind == errs.OK {
		return nil
	}
	return errs.Newf(r.Kind, op, name, "refused by a rule")
}

func (d *Domain) register(mem []byte) error {
	r := d.ask(event{op: Register, bytes: int64(len(mem))})
	return r.refusal("fabric.Register", "")
}

func (d *Domain) connect(c *hook.Connection) error {
	op, name := Accept, "fabric.Accept"
	if c.Dialled {
		op, name = Dial, "fabric.Dial"
	}
	r := d.ask(event{op: op, name: c.Addr})
	return r.refusal(name, c.Addr)
}

// region refuses grants, and says Disconnected where the connection was cut.
type region struct {
	*hook.Region
	d *Domain
}

func (d *Domain) newRegion(r *hook.Region) fabric.Region { return &region{r, d} }

// Grant implements fabric.Region.
func (r *region) Grant(ep fabric.Endpoint, off, length int, rights fabric.Rights) (
	fabric.Remote, error,
) {
	e, ok := ep.(*endpoint)
	if !ok || e.d != r.d {
		return r.Region.Grant(ep, off, length, rights)
	}
	rule := r.d.ask(event{op: Grant, name: e.Name(), bytes: int64(length)})
	if err := rule.refusal("fabric.Grant", e.Name()); err != nil {
		return fabric.Remote{}, err
	}
	rem, err := r.Region.Grant(ep, off, length, rights)
	return rem, e.explain(err)
}
