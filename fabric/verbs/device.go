//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"fmt"
	"os"
	"syscall"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// device is one open RDMA device.
type device struct {
	d     *domain
	name  string
	index int // in domain.devices and in the keys of regions
	ctx   *cContext
	pd    *cPD
	info  deviceInfo
	async *watcher

	windows windowPool // guarded by domain.grants.mu
}

func newDevice(d *domain, name string, index int) (*device, error) {
	ctx, pd, info, err := openDevice(name)
	if err != nil {
		return nil, err
	}
	if d.opts.NoWindows {
		info.windows = false
	}
	return &device{d: d, name: name, index: index, ctx: ctx, pd: pd, info: info}, nil
}

// watch starts to listen to the device's asynchronous events.
func (dev *device) watch() error {
	var err error
	if dev.async, err = watch(deviceFD(dev.ctx)); err != nil {
		return errs.Wrap("verbs.Open", dev.name, err)
	}
	dev.d.wg.Go(dev.serveAsync)
	return nil
}

func (dev *device) stop() {
	if dev.async != nil {
		dev.async.close()
	}
}

func (dev *device) free() {
	dev.windows.free()
	closeDevice(dev.ctx, dev.pd)
}

// serveAsync runs until the watcher is closed.
func (dev *device) serveAsync() {
	for {
		var ev asyncEvent
		err := dev.async.read(func() (err error) {
			ev, err = nextAsync(dev.ctx)
			return err
		})
		if err != nil {
			return
		}
		dev.handle(ev)
	}
}

// handle ends the endpoints that an event concerns. Other events are news only.
func (dev *device) handle(ev asyncEvent) {
	var (
		why      string
		concerns func(e *endpoint) bool
	)
	switch ev.kind {
	case eventQPFatal, eventQPRequest, eventQPAccess:
		concerns = func(e *endpoint) bool { return e.qpNum == ev.qpNum }
		why = "the device reports an error of the connection"
		if ev.kind != eventQPFatal {
			why = "the peer asked for what it may not have"
		}
	case eventPortErr:
		concerns = func(e *endpoint) bool { return e.port == ev.port }
		why = fmt.Sprintf("port %d of %s went down", ev.port, dev.name)
	case eventDeviceFatal:
		concerns = func(*endpoint) bool { return true }
		why = dev.name + " is gone"
	default:
		return
	}
	dev.d.mu.Lock()
	eps := keys(dev.d.eps)
	dev.d.mu.Unlock()
	for _, e := range eps {
		if e.dev == dev && concerns(e) {
			e.die(errs.Disconnected, why)
		}
	}
}

// watcher waits for a descriptor of the libraries in the runtime's poller. It has a descriptor of
// its own, so that closing it wakes the reader and leaves the library's alone.
type watcher struct {
	file *os.File
	raw  syscall.RawConn
}

func watch(fd int) (*watcher, error) {
	own, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, 0)
	if errno != 0 {
		return nil, errno
	}
	w := &watcher{file: os.NewFile(own, "verbs events")}
	var err error
	if w.raw, err = w.file.SyscallConn(); err != nil {
		_ = w.file.Close()
		return nil, err
	}
	return w, nil
}

// read calls take until it gives anything but EAGAIN. An error of its own ends the watch.
func (w *watcher) read(take func() error) error {
	var failed error
	err := w.raw.Read(func(uintptr) bool {
		failed = take()
		return failed != syscall.EAGAIN && failed != syscall.EINTR
	})
	if err != nil {
		return err
	}
	return failed
}

func (w *watcher) close() { _ = w.file.Close() }

// Devices are the ports of the domain's devices.
func (c connector) Devices() ([]fabric.Device, error) {
	var all []fabric.Device
	for _, dev := range c.d.devices {
		all = append(all, fabric.Device{Name: dev.name, Up: true})
	}
	return all, nil
}
