package attach

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
)

// Local is a Source of an export of this process: each connection is a pair of sockets, one end for
// the kernel and one for a server of its own.
type Local struct {
	exp   nbd.Export
	cfg   nbd.Config
	ro    bool
	order *order

	served sync.WaitGroup // connections that are served

	mu    sync.Mutex
	links map[*localLink]struct{}
	size  int64 // that they all know
}

// NewLocal makes a source of an export, which belongs to it from then on. cfg is for one
// connection.
func NewLocal(exp nbd.Export, cfg nbd.Config, readOnly bool) *Local {
	return &Local{exp: exp, cfg: cfg, ro: readOnly, order: newOrder(),
		links: make(map[*localLink]struct{})}
}

// localLink is what is behind one connection.
type localLink struct {
	from   *Local
	server *nbd.Server
	ctx    context.Context // ends with the connection
	stop   context.CancelFunc
}

// Link implements Source.
func (s *Local) Link(ctx context.Context) (*Link, error) {
	ll := &localLink{from: s}
	ll.ctx, ll.stop = context.WithCancel(context.Background())
	entry := nbd.Entry{ReadOnly: s.ro, Open: func(context.Context) (nbd.Export, error) {
		return newView(ll), nil
	}}
	var err error
	if ll.server, err = nbd.NewServer(s.cfg, entry); err != nil {
		return nil, err
	}
	l, near, err := newLink()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.links[ll] = struct{}{}
	s.mu.Unlock()
	l.start(ll.end)
	s.served.Go(func() {
		ll.server.ServeConn(near)
		l.shut() // whatever it ended by: the kernel is to know
	})
	if err := l.choose(ctx); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// end is called when the connection has ended. What has begun goes on, and nobody waits for it
// here: the kernel is to have another connection soon.
func (ll *localLink) end() {
	ll.stop()
	ll.from.mu.Lock()
	delete(ll.from.links, ll)
	ll.from.mu.Unlock()
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_ = ll.server.Shutdown(over) // it says that it was not given any time
}

// Size implements Source: the export's size, which all connections serve from now on.
func (s *Local) Size(ctx context.Context) (int64, error) {
	size := s.exp.Size()
	s.mu.Lock()
	known := s.size == size
	links := make([]*localLink, 0, len(s.links))
	for ll := range s.links {
		links = append(links, ll)
	}
	s.mu.Unlock()
	if known {
		return size, nil
	}
	for _, ll := range links {
		// Whoever chooses an export anew has it look at its size.
		if err := ll.server.Try(ctx, ""); err != nil && ll.ctx.Err() == nil {
			return 0, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size = size
	return size, nil
}

// Lost implements Source: an export that was given to somebody else does not come back.
func (s *Local) Lost() error {
	if e := nbd.ExtrasOf(s.exp).Ender; e != nil && e.Ended() {
		return errs.Newf(errs.Shutdown, "attach", "", "another gateway has the volume")
	}
	return nil
}

// Underway is how many changes have begun and not ended.
func (s *Local) Underway() int { return s.order.begun() }

// closeMax bounds how long changes that have begun may hold up the end.
const closeMax = 20 * time.Second

// Close implements Source. Changes that have begun end first, if servers answer.
func (s *Local) Close() error {
	over := make(chan struct{})
	go func() {
		s.served.Wait()
		close(over)
	}()
	select {
	case <-over:
		return s.exp.Close()
	case <-time.After(closeMax):
		// Nobody may close what is in use; it ends with the process.
		return errs.Newf(errs.TimedOut, "attach.Close", "", "%d changes do not end", s.Underway())
	}
}

// view is the export as one connection sees it.
type view struct {
	link  *localLink
	exp   nbd.Export
	under nbd.Extras
}

func newView(ll *localLink) *view {
	return &view{link: ll, exp: ll.from.exp, under: nbd.ExtrasOf(ll.from.exp)}
}

// Size implements nbd.Export.
func (v *view) Size() int64 { return v.exp.Size() }

// ReadAt implements nbd.Export. A read may be given up at any time.
func (v *view) ReadAt(ctx context.Context, p []byte, off int64) error {
	return v.read(ctx, func(ctx context.Context) error { return v.exp.ReadAt(ctx, p, off) })
}

func (v *view) read(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(v.link.ctx, func() { cancel(errEnded) })
	defer stop()
	return fn(ctx)
}

func (v *view) change(ctx context.Context, c *change, fn func(context.Context) error) error {
	return v.link.from.order.run(ctx, v.link.ctx, c, fn)
}

// WriteAt implements nbd.Export.
func (v *view) WriteAt(ctx context.Context, p []byte, off int64, fua bool) error {
	c := change{what: isWrite.durable(fua), list: []span{{off, int64(len(p))}}, data: [][]byte{p}}
	return v.change(ctx, &c,
		func(ctx context.Context) error { return v.exp.WriteAt(ctx, p, off, fua) })
}

// Flush implements nbd.Export. It changes no bytes, and is carried through as a change is: one that
// takes longer than the kernel waits leaves less to be flushed to the one that the kernel sends
// then.
func (v *view) Flush(ctx context.Context) error {
	return v.change(ctx, &change{what: isFlush}, v.exp.Flush)
}

// Close implements nbd.Export: the export is everybody's.
func (v *view) Close() error { return nil }

// Extras implements nbd.Wrapper: what the kernel can make use of.
func (v *view) Extras() nbd.Extras {
	e := nbd.Extras{Sizer: v.under.Sizer, Fixed: v.under.Fixed, Unaligner: v.under.Unaligner}
	if v.under.Trimmer != nil {
		e.Trimmer = v
	}
	if v.under.Zeroer != nil {
		e.Zeroer = v
	}
	if v.under.Batcher != nil {
		e.Batcher = v
	}
	return e
}

// Trim implements nbd.Trimmer.
func (v *view) Trim(ctx context.Context, off, length int64, fua bool) error {
	c := change{what: isTrim.durable(fua), list: []span{{off, length}}}
	return v.change(ctx, &c,
		func(ctx context.Context) error { return v.under.Trimmer.Trim(ctx, off, length, fua) })
}

// WriteZeroes implements nbd.Zeroer.
func (v *view) WriteZeroes(ctx context.Context, off, length int64, flags nbd.ZeroFlags) error {
	c := change{what: isZeroes.durable(flags.FUA), list: []span{{off, length}}}
	return v.change(ctx, &c, func(ctx context.Context) error {
		return v.under.Zeroer.WriteZeroes(ctx, off, length, flags)
	})
}

// Batches implements nbd.Batcher.
func (v *view) Batches() bool { return v.under.Batcher != nil }

// ReadMany implements nbd.Batcher.
func (v *view) ReadMany(ctx context.Context, list []nbd.Span) error {
	return v.read(ctx, func(ctx context.Context) error {
		return v.under.Batcher.ReadMany(ctx, list)
	})
}

// WriteMany implements nbd.Batcher. Where something is remembered each is looked at by itself: what
// the kernel sends again comes in other company.
func (v *view) WriteMany(ctx context.Context, list []nbd.Span) error {
	if v.link.from.order.anyMade() {
		for _, s := range list {
			if err := v.WriteAt(ctx, s.Data, s.Off, false); err != nil {
				return err
			}
		}
		return nil
	}
	c := change{what: isWrite, list: make([]span, len(list)), data: make([][]byte, len(list))}
	for i, s := range list {
		c.list[i], c.data[i] = span{s.Off, int64(len(s.Data))}, s.Data
	}
	return v.change(ctx, &c,
		func(ctx context.Context) error { return v.under.Batcher.WriteMany(ctx, list) })
}
