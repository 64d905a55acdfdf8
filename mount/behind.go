package mount

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/meta"
)

// chunkBytes is how much of a sequential writer's data is sent at once. Chunks end at multiples
// of it in the file, so that with the default stripe unit each one goes to one server.
const chunkBytes = 1 << 20

// How long data of a writer that pauses stays here, and how often that is looked at.
const (
	idleMax  = 200 * time.Millisecond
	idleTick = 100 * time.Millisecond
)

// behind is write-behind for sequential writers: small writes are gathered into chunks, and
// chunks are sent while the program goes on writing. Everything that could tell the difference
// within this mount (reads, attributes, truncation, close, fsync) waits for the data to be at the
// servers first; errors are reported by the next write, by close and by fsync.
type behind struct {
	free chan []byte // room for chunks that nobody uses: their memory, or nil
	lend func(bytes int) *client.Buffer
	stop chan struct{}
	done sync.WaitGroup

	mu      sync.Mutex
	streams map[meta.Ino]*stream
}

// stream is one file's data on its way.
type stream struct {
	mu     sync.Mutex // held while a write waits for a chunk: writes of one file are in order
	idle   sync.Cond  // signalled when flying falls to 0
	dead   bool       // taken out of the table: whoever holds it looks for another one
	end    int64      // where the next sequential write begins
	off    int64      // of the first byte in chunk
	chunk  chunk      // gathered so far; empty when there is nothing
	file   *file      // through which chunk is sent
	last   time.Time  // of the last write
	flying int        // chunks being sent
	err    error      // of a chunk that was lost, not reported by a write yet
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
func (w *behind) enter(ino meta.Ino) *stream {
	for {
		w.mu.Lock()
		s := w.streams[ino]
		if s == nil {
			s = &stream{end: -1}
			s.idle.L = &s.mu
			w.streams[ino] = s
		}
		w.mu.Unlock()
		s.mu.Lock()
		if !s.dead {
			return s
		}
		s.mu.Unlock()
	}
}

// write takes a write if it goes on where the last one ended, and says so; otherwise the data
// before it has reached the servers when it returns, and the caller writes by itself.
func (w *behind) write(f *file, p []byte, off int64) (took bool, err error) {
	if w.free == nil {
		return false, nil
	}
	s := w.enter(f.Ino())
	defer s.mu.Unlock()
	if err, s.err = s.err, nil; err != nil {
		return false, err
	}
	sequential := off == s.end
	s.end, s.last = off+int64(len(p)), time.Now()
	if !sequential || s.chunk.data == nil && s.flying == 0 && len(w.free) == 0 {
		// Not to be gathered, or others have all the chunks and nothing of this file's will come
		// back.
		w.drainLocked(s)
		err, s.err = s.err, nil
		return false, err
	}
	for len(p) > 0 {
		if s.chunk.data == nil {
			s.chunk, s.off, s.file = w.take(), off, f
		}
		data := s.chunk.data
		room := chunkBytes - s.off%chunkBytes - int64(len(data))
		n := copy(data[len(data):len(data)+int(min(room, int64(len(p))))], p)
		s.chunk.data = data[:len(data)+n]
		p, off = p[n:], off+int64(n)
		if int64(n) == room {
			w.launchLocked(s)
		}
	}
	return true, nil
}

// take waits for a chunk: this is what holds a writer back that is faster than the servers. The
// best memory is taken for as long as a chunk lives; memory of its own is kept for the next.
func (w *behind) take() chunk {
	own := <-w.free
	if b := w.lend(chunkBytes); b != nil {
		return chunk{data: b.Bytes()[:0], lent: b}
	}
	if own == nil {
		own = make([]byte, 0, chunkBytes)
	}
	return chunk{data: own}
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
	s.chunk, s.file = chunk{}, nil
	s.flying++
	go func() {
		_, err := f.WriteAt(context.Background(), c.data, off)
		if err != nil {
			f.Lose(err)
		}
		w.give(c)
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil && s.err == nil {
			s.err = err
		}
		if s.flying--; s.flying == 0 {
			s.idle.Broadcast()
		}
	}()
}

func (w *behind) drainLocked(s *stream) {
	w.launchLocked(s)
	for s.flying > 0 {
		s.idle.Wait()
	}
}

// drain returns when all data of a file that was taken is at the servers, or lost and noted so.
func (w *behind) drain(ino meta.Ino) {
	if s := w.find(ino); s != nil {
		s.mu.Lock()
		w.drainLocked(s)
		s.mu.Unlock()
	}
}

// settle is drain for callers that report losses themselves: the next write need not.
func (w *behind) settle(ino meta.Ino) {
	if s := w.find(ino); s != nil {
		s.mu.Lock()
		w.drainLocked(s)
		s.err = nil
		s.mu.Unlock()
	}
}

// forget drains a file and drops its stream if nobody writes in the same moment.
func (w *behind) forget(ino meta.Ino) {
	w.drain(ino)
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.streams[ino]
	if s == nil || !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	if s.chunk.data == nil && s.flying == 0 {
		s.dead = true
		delete(w.streams, ino)
	}
}

// sweep sends what writers that pause have left.
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
			if s.mu.TryLock() {
				if time.Since(s.last) >= idleMax {
					w.launchLocked(s)
				}
				s.mu.Unlock()
			}
		}
	}
}

// close ends the sweeping. Files are drained by their release.
func (w *behind) close() {
	close(w.stop)
	w.done.Wait()
}
