package behind

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/meta"
)

// launchLocked sends what was gathered.
func (w *Behind) launchLocked(s *stream) {
	if s.chunk.room == nil {
		return
	}
	j := s.chunk
	s.chunk = job{}
	s.mu.Lock()
	s.sent, s.gathered = max(s.sent, s.gathered), 0
	s.flying++
	s.mu.Unlock()
	select {
	case w.work <- j:
	default: // all senders are busy; there are as many as chunks, at most
		w.done.Go(func() { w.sender(j) })
	}
}

// senderIdle is how long a sender waits for the next chunk before it ends.
const senderIdle = 10 * time.Second

// sender sends a chunk, and others while they come.
func (w *Behind) sender(j job) {
	idle := time.NewTimer(senderIdle)
	defer idle.Stop()
	for {
		w.send(&j)
		idle.Reset(senderIdle)
		select {
		case j = <-w.work:
		case <-idle.C:
			return
		case <-w.stop:
			return
		}
	}
}

// send sends a chunk and makes room again.
func (w *Behind) send(j *job) {
	s, off, n := j.s, j.off, j.n
	err := j.file.Put(context.Background(), j.room, n, off)
	if err != nil {
		j.file.Lose(err, off, int64(n))
	}
	*j = job{}
	w.free <- struct{}{}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.err == nil {
		s.err = err
	}
	if s.flying--; s.flying == 0 {
		s.sent = 0
		s.landed.WakeAll()
	}
}

// drainLocked sends what was gathered and waits until nothing flies. It holds the stream's order
// meanwhile, so that nothing more is launched.
func (w *Behind) drainLocked(ctx context.Context, s *stream) error {
	w.launchLocked(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.flying > 0 {
		if err := s.landed.Wait(ctx, &s.mu); err != nil {
			return err
		}
	}
	return nil
}

// Drain returns when all data of a file that was taken is at the servers, or lost and noted so. It
// fails if ctx ends before.
func (w *Behind) Drain(ctx context.Context, ino meta.Ino) error {
	s := w.find(ino)
	if s == nil {
		return nil
	}
	if err := s.order.take(ctx); err != nil {
		return err
	}
	defer s.order.giveBack()
	return w.drainLocked(ctx, s)
}

// End is where the data of a file ends that was taken and is not at the servers yet; 0: there is
// none. It waits for nobody.
func (w *Behind) End(ino meta.Ino) int64 {
	s := w.find(ino)
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.gathered, s.sent)
}

// Settle is Drain for callers that report losses themselves: the next write need not.
func (w *Behind) Settle(ctx context.Context, ino meta.Ino) error {
	err := w.Drain(ctx, ino)
	if s := w.find(ino); s != nil && err == nil {
		_ = s.takeError()
	}
	return err
}

// Forget drains a file and drops its stream if nobody writes in the same moment.
func (w *Behind) Forget(ino meta.Ino) {
	_ = w.Drain(context.Background(), ino) // nothing ends it early
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.streams[ino]
	if s == nil || !s.order.try() {
		return
	}
	defer s.order.giveBack()
	if s.chunk.room == nil && s.idle() {
		s.dead = true
		delete(w.streams, ino)
	}
}

// Stats are what is on its way.
type Stats struct {
	Files  int // that were written to and not forgotten
	Chunks int // of them, gathered or being sent
	Most   int // that there may be
}

// Stats counts it.
func (w *Behind) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Stats{Files: len(w.streams), Chunks: cap(w.free) - len(w.free), Most: cap(w.free)}
}

// sweep sends what writers that pause have left, and what slow ones have gathered for long.
func (w *Behind) sweep() {
	tick := time.NewTicker(idleTick)
	defer tick.Stop()
	var all []*stream
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
		}
		if len(w.free) == cap(w.free) {
			continue // nothing is gathered
		}
		w.mu.Lock()
		all = all[:0]
		for _, s := range w.streams {
			all = append(all, s)
		}
		w.mu.Unlock()
		for _, s := range all {
			if s.order.try() {
				if time.Since(s.last) >= IdleMax || time.Since(s.begun) >= gatherMax {
					w.launchLocked(s)
				}
				s.order.giveBack()
			}
		}
		clear(all)
	}
}

// Close ends the sweeping. Whoever has a file open has drained it.
func (w *Behind) Close() {
	close(w.stop)
	w.done.Wait()
}
