package mount

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
)

// gate stops requests from being served while a process hands over. Those that come then stay
// unanswered: the kernel sends them again to the next one.
type gate struct {
	mu     sync.Mutex
	busy   int           // requests being served
	shut   chan struct{} // closed when it opens again; nil: it is open
	vacant chan struct{} // closed when nothing is served any more; nil: nobody waits for that
}

// enter lets a request in.
func (g *gate) enter() {
	for {
		g.mu.Lock()
		shut := g.shut
		if shut == nil {
			g.busy++
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		<-shut
	}
}

// leave ends enter.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy--; g.busy == 0 && g.vacant != nil {
		close(g.vacant)
		g.vacant = nil
	}
}

// close shuts the gate; the answer is closed when nothing is served any more.
func (g *gate) close() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	vacant := make(chan struct{})
	if g.shut = make(chan struct{}); g.busy == 0 {
		close(vacant)
	} else {
		g.vacant = vacant
	}
	return vacant
}

// open opens it again.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.shut)
	g.shut, g.vacant = nil, nil
}

// finishMax is how long a process that hands over waits for the requests that it has: one that
// takes longer is carried out by the next one, or was.
const finishMax = 3 * time.Second

// HandOver makes this process dispensable: the kernel believes nothing any more that it was told,
// what programs have written is at the servers, synced, and no request is answered any more. The
// process must end then. If it fails requests are served as before.
func (m *Mounted) HandOver(ctx context.Context) error {
	b := m.bridge
	if b.kept == nil {
		return errs.Newf(errs.Unsupported, "mount.HandOver", m.dir, "the mount has no keeper")
	}
	b.kept.handing.Store(true)
	if err := AwaitDisbelief(ctx, b.kept.table); err != nil {
		b.kept.handing.Store(false)
		return err
	}
	vacant := b.kept.gate.close()
	timer := time.NewTimer(finishMax)
	defer timer.Stop()
	select {
	case <-vacant:
	case <-timer.C:
	case <-ctx.Done():
	}
	err := b.saveAll(ctx)
	if err != nil {
		b.kept.handing.Store(false)
		b.kept.gate.open()
	}
	return errs.Wrap("mount.HandOver", m.dir, err)
}

// saveAll brings everything that was written to the servers, and has it synced.
func (b *bridge) saveAll(ctx context.Context) error {
	done := map[meta.Ino]bool{}
	for _, f := range b.files.all() {
		if ino := f.Ino(); !done[ino] {
			done[ino] = true
			if err := b.fs.Drain(ctx, ino); err != nil {
				return err
			}
		}
	}
	if err := b.fs.HandOver(ctx); err != nil {
		return err
	}
	for _, ino := range b.kept.marked() {
		b.saved(ino)
	}
	if left := b.kept.marked(); len(left) > 0 && !wait.Sleep(ctx, 0) {
		return errs.Wrap("mount.HandOver", "", ctx.Err())
	}
	return nil
}
