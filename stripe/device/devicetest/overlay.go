package devicetest

import (
	"sync"

	"github.com/sluice-storage/sluice/stripe/device"
	"golang.org/x/sys/unix"
)

// Overlay is a device in memory on top of content that it shares and does not change: what is
// written is kept apart, by blocks. So thousands of devices can begin with one content, each in the
// time that its own writes take. Everything is stable at once.
type Overlay struct {
	name string
	base []byte

	mu    sync.RWMutex
	pages []page
}

// page is a block that was written; with shared, another overlay has it too. nil: as in base.
type page struct {
	bytes  *[device.BlockBytes]byte
	shared bool
}

// NewOverlay makes one. The content must not change as long as it is in use.
func NewOverlay(name string, content []byte) *Overlay {
	blocks := (len(content) + device.BlockBytes - 1) / device.BlockBytes
	return &Overlay{name: name, base: content, pages: make([]page, blocks)}
}

// Fork makes a second device that begins with the present content of this one.
func (o *Overlay) Fork(name string) *Overlay {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.pages {
		o.pages[i].shared = true
	}
	return &Overlay{name: name, base: o.base, pages: append([]page(nil), o.pages...)}
}

// Do implements device.Device.
func (o *Overlay) Do(ops []*device.Op) {
	for _, op := range ops {
		op.N, op.Err = o.move(op)
	}
}

func (o *Overlay) move(op *device.Op) (n int, err error) {
	if op.Kind == device.Sync {
		return 0, nil
	}
	if op.Kind == device.Read {
		o.mu.RLock()
		defer o.mu.RUnlock()
	} else {
		o.mu.Lock()
		defer o.mu.Unlock()
	}
	for _, b := range op.Bufs {
		at := op.Off + int64(n)
		if at < 0 || at+int64(len(b)) > int64(len(o.base)) {
			return n, unix.EINVAL
		}
		if op.Kind == device.Read {
			o.readLocked(b, at)
		} else {
			o.writeLocked(b, at)
		}
		n += len(b)
	}
	return n, nil
}

func (o *Overlay) readLocked(b []byte, at int64) {
	for len(b) > 0 {
		k, skip := at/device.BlockBytes, at%device.BlockBytes
		var n int
		if p := o.pages[k].bytes; p != nil {
			n = copy(b, p[skip:])
		} else {
			end := min((k+1)*device.BlockBytes, int64(len(o.base)))
			n = copy(b, o.base[at:end])
		}
		b, at = b[n:], at+int64(n)
	}
}

func (o *Overlay) writeLocked(b []byte, at int64) {
	for len(b) > 0 {
		k, skip := at/device.BlockBytes, at%device.BlockBytes
		p := &o.pages[k]
		if old := p.bytes; old == nil || p.shared {
			*p = page{bytes: new([device.BlockBytes]byte)}
			if old == nil {
				copy(p.bytes[:], o.base[k*device.BlockBytes:])
			} else {
				*p.bytes = *old
			}
		}
		n := copy(p.bytes[skip:], b)
		b, at = b[n:], at+int64(n)
	}
}

// Size implements device.Device.
func (o *Overlay) Size() int64 { return int64(len(o.base)) }

// Reserve implements device.Device.
func (o *Overlay) Reserve(int64, int64) error { return nil }

// Name implements device.Device.
func (o *Overlay) Name() string { return o.name }

// Close implements device.Device. The content stays.
func (o *Overlay) Close() error { return nil }
