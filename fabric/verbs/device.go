//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

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
	heard chan struct{} // closed when serveAsync has ended

	refs    deviceRefs
	windows windowPool // guarded by domain.grants.mu
}

func newDevice(d *domain, name string, index int) (*device, error) {
	ctx, pd, info, err := openDevice(name)
	if err != nil {
		if denied := denied(name, deviceNode(name)); denied != nil {
			return nil, denied
		}
		return nil, errs.Newf(errs.Unsupported, "verbs.Open", name, "%s does not open: %w", name, err)
	}
	if d.opts.NoWindows {
		info.windows = false
	}
	return &device{
		d: d, name: name, index: index, ctx: ctx, pd: pd, info: info,
		refs: deviceRefs{idle: make(chan struct{})},
	}, nil
}

// denied tells why a device file cannot be opened, where permissions are the cause: the libraries
// do not report it.
func denied(device, path string) error {
	switch err := syscall.Access(path, 4|2); err { // for reading and writing
	case nil:
		return nil
	case syscall.ENOENT:
		return errs.Newf(errs.Unsupported, "verbs.Open", device, "there is no %s", path)
	case syscall.EACCES, syscall.EPERM:
		return errs.Newf(errs.Access, "verbs.Open", device, "no permission to use %s", path)
	default:
		return errs.New(errs.KindOf(err), "verbs.Open", path, err)
	}
}

// deviceNode is the file by which a device is opened.
func deviceNode(name string) string {
	links, _ := filepath.Glob("/sys/class/infiniband_verbs/*/ibdev")
	for _, link := range links {
		text, _ := os.ReadFile(link) // it may be gone
		if strings.TrimSpace(string(text)) == name {
			return "/dev/infiniband/" + filepath.Base(filepath.Dir(link))
		}
	}
	return "/dev/infiniband/uverbs* of " + name
}

// watch starts to listen to the device's asynchronous events.
func (dev *device) watch() error {
	var err error
	if dev.async, err = watch(deviceFD(dev.ctx)); err != nil {
		return errs.Wrap("verbs.Open", dev.name, err)
	}
	dev.heard = make(chan struct{})
	dev.d.Running.Go(dev.serveAsync)
	return nil
}

// free closes a device that is not used any more.
func (dev *device) free() {
	if dev.async != nil {
		dev.async.close()
		<-dev.heard
	}
	dev.d.grants.mu.Lock()
	dev.windows.free()
	dev.d.grants.mu.Unlock()
	closeDevice(dev.ctx, dev.pd)
}

// serveAsync runs until the watcher is closed.
func (dev *device) serveAsync() {
	defer close(dev.heard)
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

// handle ends the endpoints that an event concerns. Other events are ignored.
func (dev *device) handle(ev asyncEvent) {
	var (
		why      string
		concerns func(e *endpoint) bool
	)
	switch ev.kind {
	case eventCQErr:
		concerns = func(e *endpoint) bool { return e.sendCQ.has(ev.cq) || e.recvCQ.has(ev.cq) }
		why = "the device reports an error of a completion queue"
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
		dev.retire()
		return
	default:
		return
	}
	dev.endAll(concerns, why)
}

// endAll ends the endpoints of a device that fit.
func (dev *device) endAll(concerns func(*endpoint) bool, why string) {
	for _, one := range dev.d.Endpoints() {
		if e := one.(*endpoint); e.dev == dev && concerns(e) {
			e.Die(errs.Disconnected, why)
		}
	}
}

// watcher waits for a descriptor of the libraries in the runtime's poller. It has a descriptor of
// its own, so that closing it wakes the reader and leaves the library's alone.
// It has one reader at a time.
type watcher struct {
	file *os.File
	raw  syscall.RawConn

	step   func(fd uintptr) bool // of raw.Read, made once
	take   func() error          // the reader's, with what it gave last
	failed error
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
	w.step = func(uintptr) bool {
		w.failed = w.take()
		return w.failed != syscall.EAGAIN && w.failed != syscall.EINTR
	}
	return w, nil
}

// read calls take until it returns anything but EAGAIN. Other errors are the watcher's own, which
// end it.
func (w *watcher) read(take func() error) error {
	w.take = take
	if err := w.raw.Read(w.step); err != nil {
		return err
	}
	return w.failed
}

// limit makes read fail with os.ErrDeadlineExceeded after a while.
func (w *watcher) limit(d time.Duration) { _ = w.file.SetReadDeadline(time.Now().Add(d)) }

func (w *watcher) close() { _ = w.file.Close() }

// Devices returns the ports of the domain's devices, except removed ones. Devices that have come
// since become the domain's, if its options allow it.
func (c connector) Devices() ([]fabric.Device, error) {
	if err := c.d.Enter("Devices", &c.d.calls); err != nil {
		return nil, err
	}
	defer c.d.calls.Done()
	c.d.plugInNew()
	var all []fabric.Device
	for _, dev := range c.d.allDevices() {
		if !dev.refs.enter() {
			continue
		}
		gids, _ := queryGIDs(dev.ctx) // a port without any has no addresses
		for port := 1; port <= dev.info.ports; port++ {
			state, err := queryPort(dev.ctx, port)
			p := fabric.Device{Name: dev.name, Port: port, Up: err == nil && state.active}
			if err == nil {
				p.MTU = state.mtu
				p.Addrs = portAddrs(dev.name, port, state.ethernet, gids)
			}
			all = append(all, p)
		}
		dev.refs.leave()
	}
	return all, nil
}

// portAddrs are the addresses of a port: IPv4 first, link-local ones last. On Ethernet the table of
// GIDs holds them; ports of InfiniBand have those of the network interface on top.
func portAddrs(device string, port int, ethernet bool, gids []portGID) []string {
	var addrs []netip.Addr
	if ethernet {
		for _, g := range gids {
			if g.port == port {
				addrs = append(addrs, zoned(g.addr.Unmap(), g.ifIndex))
			}
		}
	} else {
		addrs = interfaceAddrs(device, port)
	}
	addrs = slices.DeleteFunc(addrs, func(a netip.Addr) bool {
		return !a.IsGlobalUnicast() && !a.IsLoopback() && a.Zone() == ""
	})
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return rank(a) - rank(b) })
	hosts := make([]string, 0, len(addrs))
	for _, a := range slices.Compact(addrs) { // RoCE has each of them in two versions
		hosts = append(hosts, a.String())
	}
	return hosts
}

func rank(a netip.Addr) int {
	switch {
	case a.Is4():
		return 0
	case !a.IsLinkLocalUnicast():
		return 1
	}
	return 2
}

// zoned adds the interface to a link-local address.
func zoned(a netip.Addr, ifIndex int) netip.Addr {
	if !a.Is6() || !a.IsLinkLocalUnicast() || ifIndex == 0 {
		return a
	}
	ifi, err := net.InterfaceByIndex(ifIndex)
	if err != nil {
		return a
	}
	return a.WithZone(ifi.Name)
}

// interfaceAddrs are the addresses of the network interfaces on top of a port of InfiniBand.
func interfaceAddrs(device string, port int) []netip.Addr {
	dirs, _ := filepath.Glob("/sys/class/infiniband/" + device + "/device/net/*")
	var all []netip.Addr
	for _, dir := range dirs {
		text, err := os.ReadFile(dir + "/dev_port")
		if err != nil || strings.TrimSpace(string(text)) != strconv.Itoa(port-1) {
			continue
		}
		ifi, err := net.InterfaceByName(filepath.Base(dir))
		if err != nil {
			continue
		}
		addrs, _ := ifi.Addrs() // an interface that is gone has none
		for _, a := range addrs {
			if ip, ok := a.(*net.IPNet); ok {
				addr, _ := netip.AddrFromSlice(ip.IP)
				all = append(all, zoned(addr.Unmap(), ifi.Index))
			}
		}
	}
	return all
}
