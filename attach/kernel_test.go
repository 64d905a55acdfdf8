package attach

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/attach/netlink"
	"github.com/sluice-storage/sluice/errs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kernelScale is how much sooner the kernel of these tests runs out of patience.
const kernelScale = 20

// kernel does what the kernel's NBD client does with its sockets: requests go through those that
// are alive; one that ends is dead; a request without an answer is sent again when its time is
// over, through another one, and its socket is dead then; with none alive requests wait.
type kernel struct {
	system System

	mu      sync.Mutex
	devices map[int]*disk
	dropped int // sockets that nobody had a place for
}

// disk is one device.
type disk struct {
	mu      sync.Mutex
	socks   []*sock
	changed chan struct{} // closed, and replaced, when a socket comes or the end does
	over    bool
	next    uint64
	dev     netlink.Device
}

type sock struct {
	nc     net.Conn
	dead   bool
	sendMu sync.Mutex
	mu     sync.Mutex
	wait   map[uint64]chan reply
}

type reply struct {
	errno uint32
	data  []byte
}

func newKernel(t *testing.T) *kernel {
	k := &kernel{devices: make(map[int]*disk),
		system: System{Sys: t.TempDir(), Dev: t.TempDir()}}
	return k
}

func (k *kernel) Connect(d netlink.Device) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	index := d.Index
	if index == netlink.Any {
		for index = 0; k.devices[index] != nil; index++ {
		}
	}
	if k.devices[index] != nil {
		return 0, errs.New(errs.Busy, "kernel", "", unix.EBUSY)
	}
	queue := k.system.sys("block", "nbd"+strconv.Itoa(index), "queue")
	if err := os.MkdirAll(queue, 0o755); err != nil {
		return 0, err
	}
	backend := filepath.Join(filepath.Dir(queue), "backend")
	if err := os.WriteFile(backend, []byte(d.Backend+"\n"), 0o644); err != nil {
		return 0, err
	}
	dk := &disk{dev: d, changed: make(chan struct{})}
	for _, fd := range d.Sockets {
		s, err := takeSocket(fd)
		if err != nil {
			return 0, err
		}
		dk.socks = append(dk.socks, s)
		go dk.receive(s)
	}
	k.devices[index] = dk
	return index, nil
}

// takeSocket makes a socket of a descriptor, which stays the caller's.
func takeSocket(fd int) (*sock, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(own), "kernel")
	defer f.Close()
	nc, err := net.FileConn(f)
	return &sock{nc: nc, wait: make(map[uint64]chan reply)}, err
}

func (k *kernel) Reconfigure(c netlink.Change) error {
	k.mu.Lock()
	d := k.devices[c.Index]
	k.mu.Unlock()
	if d == nil || d.dev.Backend != c.Backend {
		return errs.New(errs.Invalid, "kernel", "", unix.EINVAL)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.Size > 0 {
		d.dev.Size = c.Size
	}
	for _, fd := range c.Sockets {
		s, err := takeSocket(fd)
		if err != nil {
			return err
		}
		placed := false
		for i, old := range d.socks {
			if old.dead {
				d.socks[i], placed = s, true
				break
			}
		}
		if !placed {
			_ = s.nc.Close()
			k.dropped++
			return nil
		}
		go d.receive(s)
	}
	d.wakeLocked()
	return nil
}

func (d *disk) wakeLocked() {
	close(d.changed)
	d.changed = make(chan struct{})
}

func (k *kernel) Disconnect(index int) error {
	k.mu.Lock()
	d := k.devices[index]
	delete(k.devices, index)
	k.mu.Unlock()
	if d == nil {
		return errs.New(errs.Invalid, "kernel", "", unix.EINVAL)
	}
	_ = os.RemoveAll(k.system.sys("block", "nbd"+strconv.Itoa(index)))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	for _, s := range d.socks {
		d.killLocked(s)
	}
	d.wakeLocked()
	return nil
}

func (k *kernel) Connected(index int) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.devices[index] != nil, nil
}

func (k *kernel) disk(index int) *disk {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.devices[index]
}

func (d *disk) killLocked(s *sock) {
	if !s.dead {
		s.dead = true
		_ = s.nc.Close()
	}
}

// receive takes replies, until the socket ends.
func (d *disk) receive(s *sock) {
	for {
		var h [16]byte
		if _, err := io.ReadFull(s.nc, h[:]); err != nil {
			break
		}
		id := binary.BigEndian.Uint64(h[8:])
		s.mu.Lock()
		to := s.wait[id]
		delete(s.wait, id)
		s.mu.Unlock()
		r := reply{errno: binary.BigEndian.Uint32(h[4:])}
		if n := id >> 32; n > 0 && r.errno == 0 { // a read: the length is in the number
			r.data = make([]byte, n)
			if _, err := io.ReadFull(s.nc, r.data); err != nil {
				break
			}
		}
		to <- r
	}
	d.mu.Lock()
	d.killLocked(s)
	d.mu.Unlock()
}

// request does one request, as often as it takes.
func (d *disk) request(cmd uint16, off int64, data []byte, length int) ([]byte, error) {
	for {
		s, id, err := d.choose(cmd, length)
		if err != nil {
			return nil, err
		}
		answer := make(chan reply, 1)
		s.mu.Lock()
		s.wait[id] = answer
		s.mu.Unlock()
		h := binary.BigEndian.AppendUint32(nil, 0x25609513)
		h = binary.BigEndian.AppendUint16(h, 0)
		h = binary.BigEndian.AppendUint16(h, cmd)
		h = binary.BigEndian.AppendUint64(h, id)
		h = binary.BigEndian.AppendUint64(h, uint64(off))
		h = binary.BigEndian.AppendUint32(h, uint32(length))
		s.sendMu.Lock()
		_, err = s.nc.Write(append(h, data...))
		s.sendMu.Unlock()
		if err == nil {
			select {
			case r := <-answer:
				if r.errno != 0 {
					return nil, errs.Newf(errs.IO, "kernel", "", "error %d", r.errno)
				}
				return r.data, nil
			case <-time.After(d.dev.Timeout / kernelScale):
			}
		}
		d.mu.Lock()
		d.killLocked(s)
		d.mu.Unlock()
	}
}

// choose waits for a socket that is alive.
func (d *disk) choose(cmd uint16, length int) (*sock, uint64, error) {
	for {
		d.mu.Lock()
		d.next++
		id := d.next & 0xffffffff
		if cmd == 0 {
			id |= uint64(length) << 32
		}
		over, changed := d.over, d.changed
		for i := range d.socks {
			if s := d.socks[(int(d.next)+i)%len(d.socks)]; !s.dead && !over {
				d.mu.Unlock()
				return s, id, nil
			}
		}
		d.mu.Unlock()
		if over {
			return nil, 0, errs.Newf(errs.IO, "kernel", "", "disconnected")
		}
		select {
		case <-changed:
		case <-time.After(d.dev.DeadTimeout):
			return nil, 0, errs.Newf(errs.IO, "kernel", "", "no socket is left")
		}
	}
}

func (d *disk) read(off int64, length int) ([]byte, error) { return d.request(0, off, nil, length) }
func (d *disk) write(off int64, p []byte) error {
	_, err := d.request(1, off, p, len(p))
	return err
}
func (d *disk) flush() error {
	_, err := d.request(3, 0, nil, 0)
	return err
}
func (d *disk) trim(off int64, length int) error {
	_, err := d.request(4, off, nil, length)
	return err
}

// alive is how many sockets are.
func (d *disk) alive() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.socks {
		if !s.dead {
			n++
		}
	}
	return n
}

// cut ends one of the sockets.
func (d *disk) cut(i int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.killLocked(d.socks[i%len(d.socks)])
}
