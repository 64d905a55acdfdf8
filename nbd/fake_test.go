package nbd

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
)

// fake is an export with nothing but the five methods, and hooks to make it fail.
type fake struct {
	mu   sync.RWMutex
	data []byte

	opens, closes, flushes, fuas atomic.Int64
	before                       atomic.Pointer[hook] // see setHook
}

// hook is called before a call is carried out. It may block, fail or panic.
type hook = func(op string, off int64) error

func newFake(size int) *fake { return &fake{data: make([]byte, size)} }

// setHook may be called while the fake is served; nil: none any more.
func (f *fake) setHook(h hook) {
	if h == nil {
		f.before.Store(nil)
		return
	}
	f.before.Store(&h)
}

func (f *fake) hook(op string, off int64) error {
	if h := f.before.Load(); h != nil {
		return (*h)(op, off)
	}
	return nil
}

func (f *fake) Size() int64 { return int64(len(f.data)) }

func (f *fake) ReadAt(_ context.Context, p []byte, off int64) error {
	if err := f.hook("read", off); err != nil {
		return err
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	copy(p, f.data[off:])
	return nil
}

func (f *fake) WriteAt(_ context.Context, p []byte, off int64, fua bool) error {
	if err := f.hook("write", off); err != nil {
		return err
	}
	if fua {
		f.fuas.Add(1)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	copy(f.data[off:], p)
	return nil
}

func (f *fake) Flush(context.Context) error {
	f.flushes.Add(1)
	return f.hook("flush", 0)
}

func (f *fake) Close() error {
	f.closes.Add(1)
	return nil
}

// entry serves the fake itself.
func (f *fake) entry(name string) Entry { return entryOf(name, f, f) }

func entryOf(name string, exp Export, f *fake) Entry {
	return Entry{Name: name, Open: func(context.Context) (Export, error) {
		f.opens.Add(1)
		return exp, nil
	}}
}

// full has every extra of the contract. Its map tells runs of 4 KiB blocks apart by content.
type full struct {
	*fake
	zeroFlags atomic.Value
	trims     atomic.Int64
	released  atomic.Int64
	noZero    bool // WriteZeroes is Unsupported
}

func (f *full) Trim(_ context.Context, off, _ int64, _ bool) error {
	f.trims.Add(1)
	return f.hook("trim", off)
}

func (f *full) WriteZeroes(_ context.Context, off, length int64, flags ZeroFlags) error {
	f.zeroFlags.Store(flags)
	if err := f.hook("zero", off); err != nil {
		return err
	}
	if f.noZero {
		return errs.New(errs.Unsupported, "fake", "", nil)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.data[off : off+length])
	return nil
}

func (f *full) Map(_ context.Context, off, length int64, most int, dst []Extent) ([]Extent, error) {
	if err := f.hook("map", off); err != nil {
		return nil, err
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	const block = 4096
	for end := off + length; off < end && most > 0; most-- {
		zero := f.zeroBlock(off / block)
		to := (off/block + 1) * block
		for to < end && f.zeroBlock(to/block) == zero {
			to += block
		}
		to = min(to, f.Size())
		dst = append(dst, Extent{Len: to - off, Hole: zero, Zero: zero})
		off = to
	}
	return dst, nil
}

func (f *full) zeroBlock(n int64) bool {
	p := f.data[n*4096 : min((n+1)*4096, f.Size())]
	return len(bytes.Trim(p, "\x00")) == 0
}

func (f *full) Description() string { return "a fake disk" }

// slicing is a full export whose bytes are lent.
type slicing struct{ *full }

func (s slicing) Slice(off int64, length int) ([]byte, func(), error) {
	if err := s.hook("slice", off); err != nil {
		return nil, nil, err
	}
	return s.data[off : off+int64(length)], func() { s.released.Add(1) }, nil
}

func (s slicing) Instant() bool { return true }

// sized states block sizes.
type sized struct {
	*fake
	minimum, preferred, maximum uint32
}

func (s sized) BlockSizes() (uint32, uint32, uint32) { return s.minimum, s.preferred, s.maximum }

// cached has every even megabyte at hand.
type cached struct{ *fake }

func (c cached) ReadNow(p []byte, off int64) bool {
	if off>>20%2 == 1 {
		return false
	}
	copy(p, c.data[off:])
	return true
}

// lying has a map that breaks the contract.
type lying struct {
	*fake
	exts []Extent
}

func (l lying) Map(context.Context, int64, int64, int, []Extent) ([]Extent, error) {
	return l.exts, nil
}
