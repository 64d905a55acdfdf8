package client

import (
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/mem"
)

// Memory is what Alloc lends. It is the caller's until Free.
type Memory struct {
	bytes []byte
	buf   *Buffer    // that it is part of; nil: of none
	arena *mem.Arena // that it is alone in; nil: none
	fs    *FS
}

// Alloc lends n bytes of memory that servers move data into and out of by themselves, where there
// is such: reads and writes of it are not copied in this process, except writes that are kept until
// they are synced. It always answers. Up to 1 MiB comes from the FS's buffers (Options.Buffers),
// zeroed or not; more is mapped for the caller alone, which takes some time: allocate once and use
// it for many calls. Where there is no such memory, because no server is on this host or behind a
// device, all buffers are lent, or the host refuses, it is ordinary memory of this process, which
// is copied as any other. Shared tells which it is.
//
// It belongs to this FS and goes with it: do not touch it after FS.Close. Calls with it must have
// returned before Free.
func (fs *FS) Alloc(n int) *Memory {
	if m := fs.TryAlloc(n); m != nil {
		return m
	}
	return &Memory{bytes: make([]byte, max(n, 0)), fs: fs}
}

// TryAlloc is Alloc of memory that servers reach, or nil where there is none.
func (fs *FS) TryAlloc(n int) *Memory {
	if b := fs.TryTake(n); b != nil {
		return &Memory{bytes: b.Bytes()[:n:n], buf: b, fs: fs}
	}
	if fs.buffers != nil && n > mem.ClassBytes(4) {
		a, err := fs.buffers.alone(n)
		if err == nil {
			return &Memory{bytes: a.Bytes()[:n:n], arena: a, fs: fs}
		}
		fs.opts.Logger.Warn("no memory that servers reach: data is copied", "bytes", n, "err", err)
	}
	return nil
}

// Bytes is the memory, as long as was asked for. It must not be used after Free.
func (m *Memory) Bytes() []byte { return m.bytes }

// Shared tells whether servers reach the memory by themselves.
func (m *Memory) Shared() bool { return m.buf != nil || m.arena != nil }

// Free gives the memory back. Only the first call counts.
func (m *Memory) Free() {
	m.bytes = nil
	if m.buf != nil {
		m.buf.Return()
	}
	if m.arena != nil {
		if err := m.fs.buffers.endAlone(m.arena); err != nil {
			m.fs.opts.Logger.Warn("memory was not given back", "err", err)
		}
	}
	m.buf, m.arena = nil, nil
}

// alones are the arenas that Alloc has mapped. Those that are not freed go with the FS. The zero
// value is ready.
type alones struct {
	mu   sync.Mutex
	all  map[*mem.Arena]struct{}
	over bool
}

func (s *alones) add(a *mem.Arena) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	if s.all == nil {
		s.all = map[*mem.Arena]struct{}{}
	}
	s.all[a] = struct{}{}
	return true
}

// remove tells whether the arena is the caller's to close.
func (s *alones) remove(a *mem.Arena) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, here := s.all[a]
	delete(s.all, a)
	return here
}

// close ends all that are left.
func (s *alones) close() (first error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for a := range s.all {
		if err := a.Close(); first == nil {
			first = err
		}
	}
	s.all = nil
	return first
}

// alone maps an arena of at least n bytes.
func (b *buffers) alone(n int) (*mem.Arena, error) {
	a, err := mem.NewArena(n, b.source)
	if err != nil {
		return nil, err
	}
	if err := b.attach(a); err != nil {
		_ = a.Close() // nobody has seen it
		return nil, err
	}
	if !b.alones.add(a) {
		b.node.Detach(a)
		_ = a.Close()
		return nil, errs.New(errs.Closed, "client.Alloc", "", nil)
	}
	return a, nil
}

func (b *buffers) endAlone(a *mem.Arena) error {
	if !b.alones.remove(a) {
		return nil // it went with the FS
	}
	b.node.Detach(a)
	return a.Close()
}
