//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"slices"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// Devices come and go. One that is removed ends its endpoints and is given back as soon as nobody
// uses it any more: the kernel may wait for that. One that appears is opened when the first
// connection leads through it, if the domain's options and limits allow it.
//
// librdmacm holds a device of its own for every one that a connection led through, and looks for
// those that are gone only while there are others. Removing the last device of a machine therefore
// waits for the end of the process where the driver waits for users at all: Soft-RoCE does, drivers
// of hardware take their devices away under them.

// tenancy counts who uses a device, so that it is not taken away under them.
type tenancy struct {
	mu    sync.Mutex
	users int
	gone  bool
	idle  chan struct{} // closed when it is gone and nobody uses it
}

// enter begins a use of the device, unless it is gone. It ends with leave.
func (t *tenancy) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.gone {
		t.users++
	}
	return !t.gone
}

func (t *tenancy) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.users--; t.gone && t.users == 0 {
		close(t.idle)
	}
}

// end allows no more uses. It tells whether this call did it.
func (t *tenancy) end() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone {
		return false
	}
	t.gone = true
	if t.users == 0 {
		close(t.idle)
	}
	return true
}

// retire ends a device that was removed. It does not wait.
func (dev *device) retire() {
	if !dev.tenancy.end() {
		return
	}
	dev.endAll(func(*endpoint) bool { return true }, dev.name+" is gone")
	dev.d.Go(dev.unplug) // where that is too late Close gives it back
}

// unplug gives everything back that was made on a device.
func (dev *device) unplug() {
	d := dev.d
	<-dev.tenancy.idle
	d.plug.Lock()
	defer d.plug.Unlock()
	d.mu.Lock()
	cqs, regions := keys(d.cqs), keys(d.regions)
	d.mu.Unlock()
	for _, q := range cqs {
		q.unplug(dev)
	}
	for _, r := range regions {
		r.unplug(dev)
	}
	dev.free()
	d.mu.Lock()
	d.devices = slices.DeleteFunc(d.devices, func(o *device) bool { return o == dev })
	d.mu.Unlock()
	forgetDevices()
}

// plugIn opens a device that was not there before and makes the domain's memory known to it.
func (d *domain) plugIn(name string) (*device, error) {
	if asked := d.opts.Devices; len(asked) > 0 && !slices.Contains(asked, name) {
		return nil, errs.Newf(errs.NotFound, "verbs.connect", name,
			"the address leads to an RDMA device that this domain does not use")
	}
	d.plug.Lock()
	defer d.plug.Unlock()
	if dev := d.deviceNamed(name); dev != nil { // somebody was quicker
		return dev, nil
	}
	index := d.freeIndex()
	if index < 0 {
		return nil, errs.Newf(errs.NoSpace, "verbs.connect", name, "more than %d devices", maxDevices)
	}
	dev, err := newDevice(d, name, index)
	if err != nil {
		return nil, err
	}
	caps := d.Caps()
	if err = dev.suits(&caps); err == nil {
		if err = dev.watch(); err == nil {
			err = d.introduce(dev)
		}
	}
	if err != nil {
		dev.free()
		return nil, err
	}
	return dev, nil
}

// suits tells whether a device can do what the domain has promised.
func (dev *device) suits(caps *fabric.Caps) error {
	mine := *caps
	dev.info.lower(&mine)
	if mine != *caps {
		return errs.Newf(errs.Unsupported, "verbs.connect", dev.name,
			"the device appeared later and can do less than those that the domain was opened on")
	}
	return nil
}

// introduce registers the domain's memory with a device and makes the device one of the domain's,
// used by the caller. plug is held, so that no memory appears meanwhile.
func (d *domain) introduce(dev *device) error {
	d.mu.Lock()
	regions := keys(d.regions)
	d.mu.Unlock()
	for i, r := range regions {
		if err := r.plugIn(dev); err != nil {
			for _, done := range regions[:i] {
				done.unplug(dev)
			}
			return err
		}
	}
	dev.tenancy.enter()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.devices = append(d.devices, dev)
	return nil
}

// deviceNamed finds a device that is there, and uses it: tenancy.leave ends that.
func (d *domain) deviceNamed(name string) *device {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, dev := range d.devices {
		if dev.name == name && dev.tenancy.enter() {
			return dev
		}
	}
	return nil
}

// freeIndex is one that no device has, or -1.
func (d *domain) freeIndex() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	for index := range maxDevices {
		if !slices.ContainsFunc(d.devices, func(o *device) bool { return o.index == index }) {
			return index
		}
	}
	return -1
}

// allDevices are those of this moment.
func (d *domain) allDevices() []*device {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.devices)
}

// removed retires the devices of a name.
func (d *domain) removed(name string) {
	for _, dev := range d.allDevices() {
		if dev.name == name {
			dev.retire()
		}
	}
}

// missDevices retires the devices that are not there any more and of which no event told.
func (d *domain) missDevices() {
	names, err := deviceNames()
	if err != nil {
		return // nothing is known
	}
	for _, dev := range d.allDevices() {
		if !slices.Contains(names, dev.name) {
			dev.retire()
		}
	}
}
