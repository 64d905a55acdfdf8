package device

import (
	"sync"

	"golang.org/x/sys/unix"
)

// Memory is a device in memory, for tests. Everything is stable at once.
type Memory struct {
	name string

	mu    sync.RWMutex
	bytes []byte
}

// NewMemory makes a device of that many bytes, all zero.
func NewMemory(name string, size int64) *Memory {
	return &Memory{name: name, bytes: make([]byte, size)}
}

// NewMemoryOf makes a device whose content is b, which it takes over.
func NewMemoryOf(name string, b []byte) *Memory { return &Memory{name: name, bytes: b} }

// Bytes is the content itself.
func (m *Memory) Bytes() []byte { return m.bytes }

// Do implements Device.
func (m *Memory) Do(ops []*Op) {
	for _, op := range ops {
		op.N, op.Err = m.move(op)
	}
}

func (m *Memory) move(op *Op) (n int, err error) {
	if op.Kind == Sync {
		return 0, nil
	}
	if op.Kind == Read {
		m.mu.RLock()
		defer m.mu.RUnlock()
	} else {
		m.mu.Lock()
		defer m.mu.Unlock()
	}
	for _, b := range op.Bufs {
		at := op.Off + int64(n)
		if at < 0 || at+int64(len(b)) > int64(len(m.bytes)) {
			return n, unix.EINVAL
		}
		if op.Kind == Read {
			copy(b, m.bytes[at:])
		} else {
			copy(m.bytes[at:], b)
		}
		n += len(b)
	}
	return n, nil
}

// Size implements Device.
func (m *Memory) Size() int64 { return int64(len(m.bytes)) }

// Reserve implements Device.
func (m *Memory) Reserve(int64, int64) error { return nil }

// Name implements Device.
func (m *Memory) Name() string { return m.name }

// Close implements Device. The content stays.
func (m *Memory) Close() error { return nil }
