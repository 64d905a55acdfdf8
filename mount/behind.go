package mount

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
)

// chunkBytes is how much of a sequential writer's data is sent at once. Chunks end at multiples
// of it in the file, so that with the default stripe unit each one goes to one server.
const chunkBytes = 1 << 20

// How long data stays here, and how often that is looked at. A chunk that does not fill is sent
// when its writer pauses, and at most gatherMax + idleTick after it was begun: a writer that goes
// on without ever filling one would keep its data from others, and from the servers, for as long
// as it likes; and those who wait for a chunk would wait for it.
const (
	idleMax   = 200 * time.Millisecond
	gatherMax = 500 * time.Millisecond
	idleTick  = 100 * time.Millisecond
)

// behind is write-behind for sequential writers: small writes are gathered into chunks, and
// chunks are sent while the program goes on writing. Everything that could tell the difference
// within this mount (reads, attributes, truncation, close, fsync) waits for the data to be at the
// servers first; errors are reported by the next write, by close and by fsync.
type behind struct {
	free chan []byte // room for chunks that nobody uses: their memory, or nil
	lend func(bytes int) *client.Buffer
	stop chan struct{}
	lost func(ino meta.Ino, off, n int64) // what was written could not be stored; nil: nobody minds
	done sync.WaitGroup

	mu      sync.Mutex
	streams map[meta.Ino]*stream
}

// stream is one file's data on its way.
type stream struct {
	order lock      // held while a write waits for a chunk: writes of one file are in order
	dead  bool      // taken out of the table: whoever holds it looks for another one
	end   int64     // where the next sequential write begins
	off   int64     // of the first byte in chunk
	chunk chunk     // gathered so far; empty when there is nothing
	file  *file     // through which chunk is sent
	last  time.Time // of the last write
	begun time.Time // when the first byte came into chunk

	mu       sync.Mutex
	gathered int64         // end of what is in chunk; 0: it is empty
	sent     int64         // end of what flies; 0: nothing does
	flying   int           // chunks being sent
	landed   chan struct{} // closed when flying falls to 0; nil while nothing flies
	err      error         // of a chunk that was lost, not reported by a write yet
}

// lock is a mutex whose waiters can be interrupted.
type lock chan struct{}

func newLock() lock { return make(lock, 1) }

func (l lock) acquire(ctx context.Context) error {
	if l.try() { // a context that is listened to costs something
		return nil
	}
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l lock) try() bool {
	select {
	case l <- struct{}{}:
		return true
	default:
		return false
	}
}

func (l lock) release() { <-l }

// takeError returns the loss that no write has reported yet.
func (s *stream) takeError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.err
	s.err = nil
	return err
}

// idle tells whether nothing flies.
func (s *stream) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flying == 0
}

// gather notes how far the data in chunk reaches.
func (s *stream) gather(end int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gathered = end
}

// chunk is data that follows each other in a file.
type chunk struct {
	data []byte         // nil: there is none
	lent *client.Buffer // that data lies in; nil: memory of this package's own
}

// newBehind makes room for so many bytes; none turns write-behind off. lend gives memory that
// servers reach by themselves, or nil.
func newBehind(bytes int, lend func(bytes int) *client.Buffer) *behind {
	w := &behind{stop: make(chan struct{}), streams: map[meta.Ino]*stream{}, lend: lend}
	if n := bytes / chunkBytes; n > 0 {
		w.free = make(chan []byte, n)
		for range n {
			w.free <- nil
		}
		w.done.Go(w.sweep)
	}
	return w
}

func (w *behind) find(ino meta.Ino) *stream {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.streams[ino]
}

// enter finds or makes a file's stream and locks it.
func (w *behind) enter(ctx context.Context, ino meta.Ino) (*stream, error) {
	for {
		w.mu.Lock()
		s := w.streams[ino]
		if s == nil {
			s = &stream{order: newLock(), end: -1}
			w.streams[ino] = s
		}
		w.mu.Unlock()
		if err := s.order.acquire(ctx); err != nil {
			return nil, err
		}
		if !s.dead {
			return s, nil
		}
		s.order.release()
	}
}

// write takes a write if it goes on where the last one ended, and says how much of it: less than
// all if ctx has ended. If it takes nothing, the data before it has reached the servers when it
// returns, and the caller writes by itself.
func (w *behind) write(ctx context.Context, f *file, p []byte, off int64) (took int, err error) {
	if w.free == nil {
		return 0, nil
	}
	s, err := w.enter(ctx, f.Ino())
	if err != nil {
		return 0, err
	}
	defer s.order.release()
	if err := s.takeError(); err != nil {
		return 0, err
	}
	sequential := off == s.end
	s.end, s.last = off+int64(len(p)), time.Now()
	if !sequential || s.chunk.data == nil && len(w.free) == 0 && s.idle() {
		// Not to be gathered, or others have all the chunks and nothing of this file's will come
		// back.
		if err := w.drainLocked(ctx, s); err != nil {
			return 0, err
		}
		return 0, s.takeError()
	}
	for took < len(p) {
		at := off + int64(took)
		if s.chunk.data == nil {
			c, err := w.take(ctx)
			if err != nil {
				s.end = at
				return took, unlessSome(took, err)
			}
			s.chunk, s.off, s.file, s.begun = c, at, f, time.Now()
		}
		data := s.chunk.data
		room := chunkBytes - s.off%chunkBytes - int64(len(data))
		n := copy(data[len(data):len(data)+int(min(room, int64(len(p)-took)))], p[took:])
		s.chunk.data = data[:len(data)+n]
		took += n
		s.gather(off + int64(took))
		if int64(n) == room {
			w.launchLocked(s)
		}
	}
	return took, nil
}

// unlessSome is err unless something was done before it: then the caller hears of that.
func unlessSome(n int, err error) error {
	if n > 0 {
		return nil
	}
	return err
}

// take waits for a chunk: this is what holds a writer back that is faster than the servers. The
// best memory is taken for as long as a chunk lives; memory of its own is kept for the next.
func (w *behind) take(ctx context.Context) (chunk, error) {
	own, ok := wait.For(ctx, w.free)
	if !ok {
		return chunk{}, ctx.Err()
	}
	if b := w.lend(chunkBytes); b != nil {
		return chunk{data: b.Bytes()[:0], lent: b}, nil
	}
	if own == nil {
		own = make([]byte, 0, chunkBytes)
	}
	return chunk{data: own}, nil
}

// give makes room again.
func (w *behind) give(c chunk) {
	if c.lent != nil {
		c.lent.Return()
		w.free <- nil
		return
	}
	w.free <- c.data[:0]
}

// launchLocked sends what was gathered.
func (w *behind) launchLocked(s *stream) {
	if s.chunk.data == nil {
		return
	}
	c, off, f := s.chunk, s.off, s.file
	data := c.data
	s.chunk, s.file = chunk{}, nil
	s.mu.Lock()
	s.sent, s.gathered = max(s.sent, s.gathered), 0
	if s.flying++; s.landed == nil {
		s.landed = make(chan struct{})
	}
	s.mu.Unlock()
	go func() {
		_, err := f.WriteAt(context.Background(), c.data, off)
		if err != nil {
			f.Lose(err)
			if w.lost != nil {
				go w.lost(f.Ino(), off, int64(len(data))) // who has locked a page may wait for this
			}
		}
		w.give(c)
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil && s.err == nil {
			s.err = err
		}
		if s.flying--; s.flying == 0 {
			close(s.landed)
			s.landed, s.sent = nil, 0
		}
	}()
}

// drainLocked sends what was gathered and waits until nothing flies. It holds the stream's order
// meanwhile, so that nothing more is launched.
func (w *behind) drainLocked(ctx context.Context, s *stream) error {
	w.launchLocked(s)
	s.mu.Lock()
	landed := s.landed
	s.mu.Unlock()
	if landed == nil {
		return nil
	}
	select {
	case <-landed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// drain returns when all data of a file that was taken is at the servers, or lost and noted so. It
// fails if ctx ends before.
func (w *behind) drain(ctx context.Context, ino meta.Ino) error {
	s := w.find(ino)
	if s == nil {
		return nil
	}
	if err := s.order.acquire(ctx); err != nil {
		return err
	}
	defer s.order.release()
	return w.drainLocked(ctx, s)
}

// end is where the data of a file ends that was taken and is not at the servers yet; 0: there is
// none. It waits for nobody.
func (w *behind) end(ino meta.Ino) int64 {
	s := w.find(ino)
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.gathered, s.sent)
}

// settle is drain for callers that report losses themselves: the next write need not.
func (w *behind) settle(ctx context.Context, ino meta.Ino) error {
	err := w.drain(ctx, ino)
	if s := w.find(ino); s != nil && err == nil {
		_ = s.takeError()
	}
	return err
}

// forget drains a file and drops its stream if nobody writes in the same moment.
func (w *behind) forget(ino meta.Ino) {
	_ = w.drain(context.Background(), ino) // nothing ends it early
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.streams[ino]
	if s == nil || !s.order.try() {
		return
	}
	defer s.order.release()
	if s.chunk.data == nil && s.idle() {
		s.dead = true
		delete(w.streams, ino)
	}
}

// sweep sends what writers that pause have left, and what slow ones have gathered for long.
func (w *behind) sweep() {
	tick := time.NewTicker(idleTick)
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
		}
		w.mu.Lock()
		all := make([]*stream, 0, len(w.streams))
		for _, s := range w.streams {
			all = append(all, s)
		}
		w.mu.Unlock()
		for _, s := range all {
			if s.order.try() {
				if time.Since(s.last) >= idleMax || time.Since(s.begun) >= gatherMax {
					w.launchLocked(s)
				}
				s.order.release()
			}
		}
	}
}

// close ends the sweeping. Files are drained by their release.
func (w *behind) close() {
	close(w.stop)
	w.done.Wait()
}
