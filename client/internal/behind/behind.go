// Package behind is write-behind for sequential writers: small writes are gathered into chunks, and
// chunks are sent while the program goes on writing. A chunk is gathered where it is sent from and
// kept until it is durable (iod.Keeper), so that the data is copied once.
//
// Everything that could tell the difference within the client (reads, attributes, truncation,
// close, fsync) waits for the data to be at the servers first (Drain). So do other clients: data is
// held back only while they cannot look at the file without this client being asked (File.Holds),
// and who is asked drains first. Errors are reported by the next Write, and by File.Lose to all
// that has the file open.
//
// It allocates nothing for a write, and starts no goroutine for one: senders are kept.
package behind

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/meta"
)

// ChunkBytes is how much of a sequential writer's data is sent at once. Chunks end at multiples
// of it in the file, so that with the default stripe unit each one goes to one server.
const ChunkBytes = 1 << 20

// How long data stays here, and how often that is looked at. A chunk that does not fill is sent
// when its writer pauses, and at most gatherMax + idleTick after it was begun: a writer that goes
// on without ever filling one would keep its data from others, and from the servers, for as long
// as it likes; and those who wait for a chunk would wait for it.
const (
	IdleMax   = 200 * time.Millisecond
	gatherMax = 500 * time.Millisecond
	idleTick  = 100 * time.Millisecond
)

// File is an open file through which data is sent.
type File interface {
	Ino() meta.Ino

	// Holds tells whether data may be held back. Whoever makes it false calls Drain next: that waits
	// for a Write that was told true, and drains what it has taken.
	Holds() bool

	// Put writes the first n bytes of a room at off. The room is no longer the caller's.
	Put(ctx context.Context, room iod.Room, n int, off int64) error

	// Lose notes that what was taken for [off, off+n) could not be stored.
	Lose(err error, off, n int64)
}

// Reserve waits for memory for a chunk; nil: there is none that is better than any.
type Reserve func(ctx context.Context, n int) (iod.Room, error)

// Behind is all data of a client that is on its way.
type Behind struct {
	reserve Reserve
	free    chan struct{} // a token for each chunk that nobody uses; nil: nothing is gathered
	work    chan job      // to senders that have nothing to do
	stop    chan struct{}
	done    sync.WaitGroup

	mu      sync.Mutex
	streams map[meta.Ino]*stream
}

// stream is one file's data on its way.
type stream struct {
	order turn      // held while a write waits for a chunk: writes of one file are in order
	dead  bool      // taken out of the table: whoever holds it looks for another one
	end   int64     // where the next sequential write begins
	chunk job       // gathered so far; without a room when there is nothing
	last  time.Time // of the last write
	begun time.Time // when the first byte came into chunk

	mu       sync.Mutex
	gathered int64      // end of what is in chunk; 0: it is empty
	sent     int64      // end of what flies; 0: nothing does
	flying   int        // chunks being sent
	landed   wait.Queue // of those who wait until nothing flies
	err      error      // of a chunk that was lost, not reported by a write yet
}

// job is a chunk: n bytes that follow each other in a file from off on.
type job struct {
	s    *stream
	file File
	room iod.Room // nil: there is none
	n    int
	off  int64
}

// turn is a mutex whose waiters can be interrupted.
type turn chan struct{}

func (l turn) take(ctx context.Context) error {
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

func (l turn) try() bool {
	select {
	case l <- struct{}{}:
		return true
	default:
		return false
	}
}

func (l turn) giveBack() { <-l }

// New makes room for so many bytes; less than a chunk turns it off.
func New(bytes int, reserve Reserve) *Behind {
	w := &Behind{reserve: reserve, stop: make(chan struct{}), streams: map[meta.Ino]*stream{}}
	if n := bytes / ChunkBytes; n > 0 {
		w.free, w.work = make(chan struct{}, n), make(chan job)
		for range n {
			w.free <- struct{}{}
		}
		w.done.Go(w.sweep)
	}
	return w
}

func (w *Behind) find(ino meta.Ino) *stream {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.streams[ino]
}

// enter finds or makes a file's stream and locks it.
func (w *Behind) enter(ctx context.Context, ino meta.Ino) (*stream, error) {
	for {
		w.mu.Lock()
		s := w.streams[ino]
		if s == nil {
			s = &stream{order: make(turn, 1), end: -1}
			w.streams[ino] = s
		}
		w.mu.Unlock()
		if err := s.order.take(ctx); err != nil {
			return nil, err
		}
		if !s.dead {
			return s, nil
		}
		s.order.giveBack()
	}
}

// Write takes a write if it goes on where the last one ended, and says how much of it: less than
// all if ctx has ended, or nothing may be held back any more. If it takes nothing, the data before
// it has reached the servers when it returns, and the caller writes by itself.
func (w *Behind) Write(ctx context.Context, f File, p []byte, off int64) (took int, err error) {
	if w.free == nil {
		return 0, nil
	}
	s, err := w.enter(ctx, f.Ino())
	if err != nil {
		return 0, err
	}
	defer s.order.giveBack()
	if err := s.takeError(); err != nil {
		return 0, err
	}
	sequential := off == s.end
	s.end, s.last = off+int64(len(p)), time.Now()
	if !sequential || !f.Holds() || s.chunk.room == nil && len(w.free) == 0 && s.idle() {
		// Not to be gathered, or others have all the chunks and nothing of this file's will come
		// back.
		if err := w.drainLocked(ctx, s); err != nil {
			return 0, err
		}
		return 0, s.takeError()
	}
	for took < len(p) {
		if s.chunk.room == nil {
			if err := w.begin(ctx, s, f, off+int64(took)); err != nil {
				s.end = off + int64(took)
				return took, unlessSome(took, err)
			}
			if !f.Holds() { // not any more: who has asked for it may not have waited for this
				w.unbegin(s)
				s.end = off + int64(took)
				return took, nil
			}
		}
		took += w.gather(s, p[took:])
	}
	return took, nil
}

// begin takes a chunk: this is what holds a writer back that is faster than the servers.
func (w *Behind) begin(ctx context.Context, s *stream, f File, off int64) error {
	if _, ok := wait.For(ctx, w.free); !ok {
		return ctx.Err()
	}
	room, err := w.reserve(ctx, int(ChunkBytes-off%ChunkBytes))
	if err != nil {
		w.free <- struct{}{}
		return err
	}
	if room == nil {
		room = plain(make([]byte, ChunkBytes-off%ChunkBytes))
	}
	s.chunk = job{s: s, file: f, room: room, off: off}
	s.begun = time.Now()
	return nil
}

// unbegin gives back a chunk that nothing was put into.
func (w *Behind) unbegin(s *stream) {
	s.chunk.room.Return()
	s.chunk = job{}
	w.free <- struct{}{}
}

// gather puts data into the chunk, as much as it has room for, and sends the chunk if it is full.
func (w *Behind) gather(s *stream, p []byte) int {
	c := &s.chunk
	room := c.room.Bytes()
	n := mem.CopyFor(mem.CopyCaller, room[c.n:], p)
	c.n += n
	full := c.n == len(room)
	s.mu.Lock()
	s.gathered = c.off + int64(c.n)
	s.mu.Unlock()
	if full {
		w.launchLocked(s)
	}
	return n
}

// plain is memory that nothing is known of.
type plain []byte

func (p plain) Bytes() []byte { return p }
func (p plain) Return()       {}

// Plain tells whether a room is memory that was made because none could be reserved.
func Plain(r iod.Room) bool {
	_, is := r.(plain)
	return is
}

// unlessSome is err unless something was done before it: then the caller hears of that.
func unlessSome(n int, err error) error {
	if n > 0 {
		return nil
	}
	return err
}

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
