//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/progress"
	"github.com/sluice-storage/sluice/fabric/provider"
	"github.com/sluice-storage/sluice/internal/logonce"
)

// Available tells whether a domain can be opened here, and if not why, in a sentence for users.
func Available() (ok bool, why string) {
	d, err := Open(Options{})
	if err == nil {
		_ = d.Close()
		return true, ""
	}
	var e *errs.Error
	if errors.As(err, &e) && e.Err != nil {
		return false, e.Err.Error()
	}
	return false, err.Error()
}

// Devices names the RDMA devices of this machine.
func Devices() ([]string, error) {
	if why := loadLibraries(); why != "" {
		return nil, errs.Newf(errs.Unsupported, "verbs", "", "no RDMA libraries: %s", why)
	}
	names, err := deviceNames()
	return names, errs.Wrap("verbs.Devices", "", err)
}

// noDevices tells whether the kernel says that there are none. Then nobody has to load libraries to
// learn that: they bring twenty others along, and most machines have no use for them.
func noDevices() bool {
	if _, err := os.Stat("/sys/class"); err != nil {
		return false // it is not to be seen here
	}
	list, err := os.ReadDir("/sys/class/infiniband")
	return errors.Is(err, os.ErrNotExist) || err == nil && len(list) == 0
}

// domain owns the devices, endpoints, listeners, queues and regions of one Open.
type domain struct {
	// Running has all goroutines but those of queues.
	provider.Domain
	opts     Options
	channel  *cChannel
	conns    connTable
	grants   grantTable
	refusals logonce.Logger
	watchdog *progress.Watchdog[*progress.Queue]
	spinners progress.Spinners
	events   *watcher       // of channel
	calls    sync.WaitGroup // calls under way that Close has to wait for
	closing  sync.Once

	plug sync.RWMutex // memory is registered while it is held for reading; devices come and go

	mu        sync.Mutex
	devices   []*device
	nextIndex uint32
	cqs       map[*cq]struct{}
	regions   map[*region]struct{}
}

// Open makes a domain on the devices that opts names.
func Open(opts Options) (fabric.Domain, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	var names []string
	if !noDevices() {
		var err error
		if names, err = Devices(); err != nil {
			return nil, err
		}
	}
	if len(names) == 0 {
		return nil, errs.Newf(errs.Unsupported, "verbs.Open", "", "this machine has no RDMA device")
	}
	d := &domain{opts: opts, cqs: map[*cq]struct{}{}, regions: map[*region]struct{}{}}
	d.Domain.Open(fabric.Caps{Provider: "verbs"})
	d.refusals.Log = opts.Log
	d.conns.open()
	d.grants.open()
	err := d.openDevices(names)
	if err == nil {
		err = d.openChannel()
	}
	if err != nil {
		d.Stop()
		d.release()
		return nil, err
	}
	d.Limit(d.limits())
	return d, nil
}

// openDevices opens the devices that the options name, or all with an active port.
func (d *domain) openDevices(names []string) error {
	asked := d.opts.Devices
	if len(asked) == 0 {
		asked = names
	}
	for _, name := range asked {
		if !slices.Contains(names, name) {
			return errs.Newf(errs.NotFound, "verbs.Open", name, "no such RDMA device; there are: %s",
				strings.Join(names, " "))
		}
		if len(d.devices) == maxDevices {
			return errs.Newf(errs.Invalid, "verbs.Open", name, "more than %d devices", maxDevices)
		}
		dev, err := newDevice(d, name, len(d.devices))
		if err != nil {
			return err
		}
		if len(d.opts.Devices) == 0 && dev.info.activePorts == 0 {
			closeDevice(dev.ctx, dev.pd)
			continue
		}
		d.devices = append(d.devices, dev)
	}
	if len(d.devices) == 0 {
		return errs.Newf(errs.Unsupported, "verbs.Open", "", "no RDMA device with an active port")
	}
	for _, dev := range d.devices {
		if err := dev.watch(); err != nil {
			return err
		}
	}
	return nil
}

// openChannel starts to listen to the connection manager.
func (d *domain) openChannel() error {
	var err error
	if d.channel, err = newChannel(); err != nil {
		if denied := denied("", "/dev/infiniband/rdma_cm"); denied != nil {
			return denied
		}
		return errs.Newf(errs.Unsupported, "verbs.Open", "",
			"no RDMA connection manager (is the kernel module rdma_ucm loaded?): %w", err)
	}
	if d.events, err = watch(channelFD(d.channel)); err != nil {
		return errs.Wrap("verbs.Open", "", err)
	}
	d.Running.Go(d.serveEvents)
	d.Running.Go(d.keepAlive)
	d.watchdog = progress.NewWatchdog[*progress.Queue]()
	d.Running.Go(func() { d.watchdog.Run(d.Context()) })
	return nil
}

// limits are what all devices can do.
func (d *domain) limits() fabric.Caps {
	caps := fabric.Caps{
		Provider: "verbs", MaxSge: 32, MaxMessage: d.opts.MaxMessage, MaxTransfer: maxTransfer,
		MaxInline: 512, QueueDepth: d.opts.QueueDepth, ReadDepth: 16, RefusalEnds: true,
		AsksToken: d.opts.Tokens != nil, RegistersAny: forkSafe(), PackBelow: packBelow,
	}
	for _, dev := range d.allDevices() {
		dev.info.lower(&caps)
	}
	return caps
}

// lower lowers the limits to those of a device.
func (i *deviceInfo) lower(caps *fabric.Caps) {
	caps.MaxSge = min(caps.MaxSge, i.maxSge)
	caps.MaxMessage = min(caps.MaxMessage, i.maxMessage)
	caps.MaxTransfer = min(caps.MaxTransfer, i.maxMessage)
	caps.MaxInline = min(caps.MaxInline, i.maxInline)
	caps.QueueDepth = min(caps.QueueDepth, deepest(i.queueDepth), i.maxCQE/cqShare)
	caps.ReadDepth = max(1, min(caps.ReadDepth, i.readsIn, i.readsOut))
}

func (d *domain) Connector() fabric.Connector { return connector{d} }

func (d *domain) Register(mem []byte) (fabric.Region, error) {
	r := &region{d: d}
	r.Open(&d.Domain, mem)
	if err := d.Enter("Register", &d.calls); err != nil {
		return nil, err
	}
	defer d.calls.Done()
	d.plug.RLock()
	defer d.plug.RUnlock()
	if err := r.register(); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.regions[r] = struct{}{}
	return r, nil
}

// memoryError explains a common failure.
func memoryError(op, device string, err error) error {
	if err == syscall.ENOMEM || err == syscall.EAGAIN {
		return errs.Newf(errs.NoMemory, op, device, "the memory-lock allowance is used up: "+
			"raise ulimit -l (LimitMEMLOCK= in a systemd unit)")
	}
	return errs.Wrap(op, device, err)
}

func (d *domain) NewCQ(opts fabric.CQOptions) (fabric.CQ, error) {
	if err := fabric.CheckCQ(opts); err != nil {
		return nil, err
	}
	depth := opts.Depth
	for _, dev := range d.allDevices() {
		if depth > dev.info.maxCQE/cqShare {
			return nil, errs.Newf(errs.Invalid, "verbs.NewCQ", dev.name, "depth %d; at most %d",
				depth, dev.info.maxCQE/cqShare)
		}
	}
	if err := d.Enter("NewCQ", &d.calls); err != nil {
		return nil, err
	}
	defer d.calls.Done()
	d.mu.Lock()
	defer d.mu.Unlock()
	q := newCQ(d, opts)
	d.cqs[q] = struct{}{}
	return q, nil
}

func (d *domain) Close() error {
	d.closing.Do(d.shutDown)
	return nil
}

// shutDown ends everything in the order in which the libraries allow it: listeners, endpoints,
// queues, memory, devices.
func (d *domain) shutDown() {
	d.Stop()
	d.calls.Wait()
	d.mu.Lock()
	cqs, regions := keys(d.cqs), keys(d.regions)
	d.mu.Unlock()
	for _, q := range cqs {
		d.plug.RLock()
		q.detach()
		d.plug.RUnlock()
	}
	for _, r := range regions {
		_ = r.Close()
	}
	d.release()
}

// release closes channel and devices. Nothing uses them any more.
func (d *domain) release() {
	if d.events != nil {
		d.events.close()
	}
	for _, dev := range d.allDevices() {
		if dev.async != nil {
			dev.async.close()
		}
	}
	d.Running.Wait()
	if d.channel != nil {
		freeChannel(d.channel)
	}
	for _, dev := range d.allDevices() {
		dev.free()
	}
}

func keys[K comparable](m map[K]struct{}) []K {
	all := make([]K, 0, len(m))
	for k := range m {
		all = append(all, k)
	}
	return all
}

// index numbers endpoints, so that completions of an old one are never taken for a new one's.
func (d *domain) index() uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nextIndex = (d.nextIndex + 1) &^ (1 << 31)
	return d.nextIndex
}
