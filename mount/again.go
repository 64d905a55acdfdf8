package mount

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/mount/state"
)

// again knows the threads whose request was answered with ESTALE. The kernel finds an inode by its
// name, and then asks for what the program wants; in between another mount may rename something
// else over the name, and the inode is gone. The kernel then looks the name up once more, and
// repeats the request, but only once: while others rename over the name all the time that may fail
// in the same way, and the program would hear of it.
//
// So what a lookup by such a thread leads to is kept until the thread has used it, or retryMax is
// over: a file by an open handle, a link by what it says. The lookup is repeated until that has
// succeeded. Threads of another name space of processes all have the number 0: of those only the
// last one is helped.
type again struct {
	mu      sync.Mutex
	threads map[uint32]*retry
	over    bool         // the mount is being taken away: nothing is kept any more
	table   *state.Table // where threads are noted for the process after this one; nil: nowhere
}

// retry is a thread that is to repeat its request.
type retry struct {
	end  *time.Timer
	held *client.File // the file that its last lookup led to; nil: none
	attr meta.Attr    // of what it led to
	link string       // if that is a link
}

const (
	// retryMax is for how long something is kept for a thread: it repeats its request at once, if
	// there is a processor for it.
	retryMax = 2 * time.Second

	// retryTries is how often a lookup is repeated because what it led to was gone. Each time another
	// rename must have come within the time of one request.
	retryTries = 100
)

// note notes that a thread's request is answered with ESTALE.
func (g *again) note(pid uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return
	}
	if r := g.threads[pid]; r != nil {
		r.end.Reset(retryMax)
		return
	}
	g.addLocked(pid)
	if g.table != nil {
		g.table.NoteThread(pid)
	}
}

func (g *again) addLocked(pid uint32) {
	if g.threads == nil {
		g.threads = map[uint32]*retry{}
	}
	r := &retry{}
	r.end = time.AfterFunc(retryMax, func() { g.done(pid, r) })
	g.threads[pid] = r
}

// goOn takes over the threads of a process before this one, which may just have answered the lookup
// of one of them: its second request then comes to this process, and must not be answered with
// ESTALE once more.
func (g *again) goOn(t *state.Table) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.table = t
	for _, pid := range t.Threads() {
		g.addLocked(pid)
	}
}

// repeats tells whether a thread is to repeat a request.
func (g *again) repeats(pid uint32) bool { return g.of(pid) != nil }

func (g *again) of(pid uint32) *retry {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.threads[pid]
}

// keep keeps what a lookup by a thread has led to, in place of what it kept before.
func (g *again) keep(pid uint32, f *client.File, a *meta.Attr, link string) {
	g.mu.Lock()
	r := g.threads[pid]
	if r != nil {
		f, r.held = r.held, f
		r.attr, r.link = *a, link
	}
	g.mu.Unlock()
	letGo(f)
}

// done forgets a thread; with r only if it is still about that.
func (g *again) done(pid uint32, r *retry) {
	g.mu.Lock()
	now := g.threads[pid]
	if now == nil || r != nil && now != r {
		g.mu.Unlock()
		return
	}
	delete(g.threads, pid)
	if g.table != nil {
		g.table.ForgetThread(pid)
	}
	g.mu.Unlock()
	now.end.Stop()
	letGo(now.held)
}

// stop forgets all of them.
func (g *again) stop() {
	g.mu.Lock()
	all := g.threads
	g.threads, g.over = nil, true
	g.mu.Unlock()
	for _, r := range all {
		r.end.Stop()
		letGo(r.held)
	}
}

// letGo closes a handle that was never written through, for which nobody is waited.
func letGo(f *client.File) {
	if f != nil {
		f.Discard(context.Background())
	}
}

// lookup is Lookup for a thread that may be about to repeat a request.
func (b *bridge) lookup(ctx context.Context, pid uint32, dir meta.Ino, name string) (
	meta.Attr, error) {
	a, err := b.fs.Lookup(ctx, b.as(ctx), dir, name)
	for try := 0; err == nil && try < retryTries && b.again.repeats(pid); try++ {
		if errs.KindOf(b.keepFor(ctx, pid, &a)) != errs.NotFound {
			break // it is kept, or the thread will hear why not
		}
		a, err = b.fs.Lookup(ctx, b.as(ctx), dir, name)
	}
	return a, err
}

// keepFor keeps something for a thread.
func (b *bridge) keepFor(ctx context.Context, pid uint32, a *meta.Attr) error {
	switch a.Type {
	case meta.Regular:
		f, err := b.fs.OpenIno(ctx, b.as(ctx), a.Ino, meta.OpenRead)
		if err == nil {
			b.again.keep(pid, f, a, "")
		}
		return err
	case meta.Symlink:
		link, err := b.fs.ReadLink(ctx, b.as(ctx), a.Ino)
		if err == nil {
			b.again.keep(pid, nil, a, link)
		}
		return err
	}
	return nil
}

// keptLink is a link that is gone, and is kept for a thread.
func (b *bridge) keptLink(pid uint32, ino meta.Ino) (a meta.Attr, link string, ok bool) {
	b.again.mu.Lock()
	defer b.again.mu.Unlock()
	r := b.again.threads[pid]
	if r == nil || r.attr.Ino != ino || r.attr.Type != meta.Symlink {
		return a, "", false
	}
	a = r.attr
	a.Nlink, a.Lease = 0, meta.LeaseNone
	return a, r.link, true
}
