package iodtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/stripe"
)

// Client is what a client of an I/O server can do.
type Client interface {
	iod.Data
	iod.Space
	iod.Reserver
	iod.Manager
}

// Site is the server that a crowd works on.
type Site struct {
	// Join makes a client with a session of its own, and what ends it without a word.
	Join func(session uint64) (c Client, vanish func())

	// Target is an object with a capability for it.
	Target func(session uint64, id stripe.ObjectID, r capability.Rights, trunc uint64) iod.Target

	// Kill ends the server; what is not stable is lost. Start starts the next one. When Kill returns
	// nothing of the old server answers any more.
	Kill, Start func()

	// Hold keeps a client from finding the next server until release is called. nil: nobody is kept
	// from it.
	Hold func(session uint64) (release func())

	// Flush has the server write back what it has not written yet. nil: it does that by its own
	// clock.
	Flush func()

	// Tell is what the servers' side knows of a cell of an object, or of all of it if the cell is
	// negative, for people. nil: nothing.
	Tell func(id stripe.ObjectID, cell, cellBytes int) string
}

// CrowdOptions say how a crowd works.
type CrowdOptions struct {
	Seed    uint64
	Clients int           // at a time
	Workers int           // requests of one client at a time
	Steps   int           // of each worker in each life of its client
	Lives   int           // how often a client is replaced by the next one
	Every   int           // about how many requests a server lives for; 0: for ever
	For     time.Duration // that clients begin something; 0: until each has had its lives
	Files   []*File
}

// File is what a crowd writes: one object of so many cells.
type File struct {
	Number           uint64
	Cells, CellBytes int

	alone  sync.RWMutex // shared by requests; exclusive for a removal
	manage sync.Mutex   // one truncation or fence at a time, as the metadata service does
	view   atomic.Pointer[view]
}

// view is one generation of a file's object: what clients believe, and the ledger.
type view struct {
	*Ledger
	id      stripe.ObjectID
	trunc   atomic.Uint64 // truncations that clients know of
	fencing atomic.Bool   // somebody has begun to fence it
	fenced  atomic.Bool   // and was told that it is
}

// Crowd is clients that make random requests, and the ledgers of what they know.
type Crowd struct {
	CrowdOptions
	site Site
	ctx  context.Context
	stop context.CancelCauseFunc

	began             time.Time
	requests, crashes atomic.Uint64
	next              atomic.Int64 // client numbers

	mu     sync.Mutex
	views  []*view
	living map[*hand]struct{} // one of each client
}

// ErrViolated is what a crowd ends with when the server has broken its word.
var ErrViolated = errors.New("violated")

// NewCrowd makes a crowd that has not begun.
func NewCrowd(ctx context.Context, site Site, o CrowdOptions) *Crowd {
	c := &Crowd{CrowdOptions: o, site: site, living: map[*hand]struct{}{}}
	c.ctx, c.stop = context.WithCancelCause(ctx)
	for _, f := range c.Files {
		c.renew(f, 1)
	}
	return c
}

// Requests and Crashes tell how many there were.
func (c *Crowd) Requests() uint64 { return c.requests.Load() }

// Crashes tells how often the server died.
func (c *Crowd) Crashes() uint64 { return c.crashes.Load() }

// violated ends the run with what is wrong.
func (c *Crowd) violated(format string, args ...any) {
	c.stop(fmt.Errorf("%w (seed %d): %s", ErrViolated, c.Seed, fmt.Sprintf(format, args...)))
}

// renew makes a file's object another one.
func (c *Crowd) renew(f *File, gen uint32) {
	v := &view{Ledger: NewLedger(f.Cells, f.CellBytes),
		id: stripe.ObjectID{File: f.Number, Gen: gen}}
	if c.site.Tell != nil {
		v.behind = func(cell int) string { return c.site.Tell(v.id, cell, f.CellBytes) }
	}
	c.mu.Lock()
	c.views = append(c.views, v)
	c.mu.Unlock()
	f.view.Store(v)
}

func (c *Crowd) eachView(fn func(*view)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.views {
		fn(v)
	}
}

// present are the clients that live.
func (c *Crowd) present() []*hand {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []*hand
	for h := range c.living {
		list = append(list, h)
	}
	return list
}

// Run makes requests until every client has had its lives, or the time is over, and looks at
// everything once more; or until something is violated.
func (c *Crowd) Run() error {
	defer c.stop(nil)
	c.began = time.Now()
	crashing, enough := context.WithCancel(c.ctx)
	defer enough()
	var clients, crasher sync.WaitGroup
	for i := range c.Clients {
		clients.Go(func() { c.lives(rand.New(rand.NewPCG(c.Seed, uint64(i)))) })
	}
	if c.Every > 0 {
		crasher.Go(func() { c.crashNowAndThen(crashing, rand.New(rand.NewPCG(c.Seed, 1<<32))) })
	}
	clients.Wait()
	enough()
	crasher.Wait()
	if c.ctx.Err() == nil {
		c.lastLook()
	}
	if err := context.Cause(c.ctx); err != nil {
		return err
	}
	return nil
}

// crashNowAndThen ends the server and starts the next one, again and again. Requests are counted,
// not time: so a server lives long enough on the slowest of machines.
func (c *Crowd) crashNowAndThen(ctx context.Context, rng *rand.Rand) {
	for {
		life := 1 + rng.IntN(2*c.Every)
		if rng.IntN(4) == 0 {
			life = rng.IntN(c.Every/8 + 1) // hardly up, down again
		}
		c.await(ctx, life, time.Hour)
		if ctx.Err() != nil {
			return
		}
		if c.site.Hold != nil && rng.IntN(2) == 0 {
			c.crashTwice(ctx, rng)
		} else {
			c.crash()
		}
	}
}

// await returns after so many requests, or when the time is over: a client that is kept away may
// have what all others wait for.
func (c *Crowd) await(ctx context.Context, requests int, most time.Duration) {
	late := time.After(most)
	for end := c.requests.Load() + uint64(requests); c.requests.Load() < end; {
		select {
		case <-ctx.Done():
			return
		case <-late:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// crashTwice ends the server, and the next one too, before one of the clients has found that.
func (c *Crowd) crashTwice(ctx context.Context, rng *rand.Rand) {
	list := c.present()
	if len(list) == 0 {
		return
	}
	release := c.site.Hold(list[rng.IntN(len(list))].session)
	defer release()
	c.crash()
	c.await(ctx, rng.IntN(c.Every/2+1), 100*time.Millisecond)
	c.crash()
}

func (c *Crowd) crash() {
	c.eachView(func(v *view) { v.Crashing() })
	c.site.Kill()
	c.eachView(func(v *view) { v.Crashed() })
	c.crashes.Add(1)
	c.site.Start()
}

// join makes a client and a hand of it.
func (c *Crowd) join(rng *rand.Rand) (*hand, context.CancelFunc) {
	id := int(c.next.Add(1))
	ctx, die := context.WithCancel(c.ctx)
	h := &hand{Crowd: c, id: id, session: uint64(1000 + id), rng: rng, ctx: ctx}
	h.Client, h.vanish = c.site.Join(h.session)
	return h, die
}

// leave ends a client without a word.
func (c *Crowd) leave(h *hand) {
	h.vanish()
	c.eachView(func(v *view) { v.Gone(h.id) })
}

// late tells whether the crowd has worked for as long as it was to.
func (c *Crowd) late() bool { return c.For > 0 && time.Since(c.began) > c.For }

// lives is a client and those who follow it.
func (c *Crowd) lives(rng *rand.Rand) {
	for life := 0; life < c.Lives && !c.late(); life++ {
		h, die := c.join(rng)
		c.mu.Lock()
		c.living[h] = struct{}{}
		c.mu.Unlock()
		var workers sync.WaitGroup
		var over atomic.Bool // one that ends takes all workers of its client along
		for range c.Workers {
			one := h.another(rng.Uint64())
			workers.Go(func() {
				for step := 0; step < c.Steps && !over.Load(); step++ {
					if h.ctx.Err() != nil || c.late() {
						break
					}
					one.step()
					c.requests.Add(1)
				}
				if over.Store(true); one.rng.IntN(2) == 0 {
					die() // in the middle of what the others do
				}
			})
		}
		workers.Wait()
		die()
		c.retire(h)
		if c.ctx.Err() != nil {
			return
		}
	}
}

// retire ends a client of which others know. No object is removed meanwhile: who removes one has
// all living clients sync it before, and a client that ends may still repeat something.
func (c *Crowd) retire(h *hand) {
	for _, f := range c.Files {
		f.alone.RLock()
		defer f.alone.RUnlock()
	}
	c.mu.Lock()
	delete(c.living, h)
	c.mu.Unlock()
	c.leave(h)
}

// lastLook reads everything once more, with a fresh client, before and after a crash.
func (c *Crowd) lastLook() {
	for look := range 2 {
		h, die := c.join(rand.New(rand.NewPCG(c.Seed, 9)))
		for _, f := range c.Files {
			h.read(f, span(0, f.Cells))
			h.sync(f)
		}
		die()
		c.leave(h)
		if look == 0 && c.Every > 0 {
			c.crash()
		}
	}
}

// span is n cells from first on.
func span(first, n int) []int {
	cells := make([]int, n)
	for i := range cells {
		cells[i] = first + i
	}
	return cells
}

// failed judges an error that a request of the view has ended with. Only few may come to a client
// that lives: that the object's generation was fenced.
func (h *hand) failed(v *view, what string, err error) {
	switch {
	case h.ctx.Err() != nil:
	case errs.KindOf(err) == errs.Fenced && v.fencing.Load():
	default:
		var story string
		if h.site.Tell != nil {
			story = h.site.Tell(v.id, -1, 1)
		}
		h.violated("client %d: %s of %v: %v\n%s", h.id, what, v.id, err, story)
	}
}

// allowed judges a success: a generation that was fenced before the request began has none.
func (h *hand) allowed(v *view, fenced bool, what string) {
	if fenced {
		h.violated("client %d: %s of %v succeeded after it was fenced", h.id, what, v.id)
	}
}

// target is an object as the client asks for it.
func (h *hand) target(v *view, r capability.Rights) iod.Target {
	return h.site.Target(h.session, v.id, r, v.trunc.Load())
}
