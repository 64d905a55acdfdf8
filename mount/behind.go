package mount

import (
	"context"
	"sync"
	"time"

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
	free chan []byte // chunks that nobody uses; nil ones are not yet allocated
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
	chunk  []byte     // gathered so far; nil when there is nothing
	file   *file      // through which chunk is sent
	last   time.Time  // of the last write
	flying int        // chunks being sent
	err    error      // of a chunk that was lost, not reported by a write yet
}

// newBehind makes room for so many bytes; none turns write-behind off.
func newBehind(bytes int) *behind {
	w := &behind{stop: make(chan struct{}), streams: map[meta.Ino]*stream{}}
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
	if !sequential || s.chunk == nil && s.flying == 0 && len(w.free) == 0 {
		// Not to be gathered, or others have all the chunks and nothing of this file's will come
		// back.
		w.drainLocked(s)
		err, s.err = s.err, nil
		return false, err
	}
	for len(p) > 0 {
		if s.chunk == nil {
			s.chunk, s.off, s.file = w.take(), off, f
		}
		room := chunkBytes - s.off%chunkBytes - int64(len(s.chunk))
		n := copy(s.chunk[len(s.chunk):len(s.chunk)+int(min(room, int64(len(p))))], p)
		s.chunk = s.chunk[:len(s.chunk)+n]
		p, off = p[n:], off+int64(n)
		if int64(n) == room {
			w.launchLocked(s)
		}
	}
	return true, nil
}

// take waits for a chunk: this is what holds a writer back that is faster than the servers.
func (w *behind) take() []byte {
	c := <-w.free
	if c == nil {
		c = make([]byte, 0, chunkBytes)
	}
	return c
}

// launchLocked sends what was gathered.
func (w *behind) launchLocked(s *stream) {
	if s.chunk == nil {
		return
	}
	c, off, f := s.chunk, s.off, s.file
	s.chunk, s.file = nil, nil
	s.flying++
	go func() {
		_, err := f.WriteAt(context.Background(), c, off)
		if err != nil {
			f.Lose(err)
		}
		w.free <- c[:0]
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
	if s.chunk == nil && s.flying == 0 {
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
