//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// Devices come and go. One that is removed ends its endpoints and is closed as soon as nothing uses
// it any more: the kernel may wait for that. One that appears is opened when the first connection
// leads through it, if the domain's options and limits allow it.
//
// librdmacm keeps every device open that a connection led through, and looks for removed ones only
// while there are others. Removing the last device of a machine therefore waits for the end of the
// process where the driver waits for users at all: Soft-RoCE does, drivers of hardware remove their
// devices nevertheless.

// deviceRefs counts the uses of a device: it is closed when there are none.
type deviceRefs struct {
	mu    sync.Mutex
	users int
	gone  bool
	idle  chan struct{} // closed when the device is gone and has no uses
}

// enter begins a use of the device, unless it is gone. It ends with leave.
func (r *deviceRefs) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.gone {
		r.users++
	}
	return !r.gone
}

func (r *deviceRefs) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users--; r.gone && r.users == 0 {
		close(r.idle)
	}
}

// end allows no more uses. It tells whether this call did it.
func (r *deviceRefs) end() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone {
		return false
	}
	r.gone = true
	if r.users == 0 {
		close(r.idle)
	}
	return true
}

// retire ends a device that was removed. It does not wait.
func (dev *device) retire() {
	if !dev.refs.end() {
		return
	}
	dev.endAll(func(*endpoint) bool { return true }, dev.name+" is gone")
	dev.d.Go(func() { // where that is too late Close does it
		dev.unplug()
		dev.d.forget(dev.name)
	})
}

// unplug frees everything that was made on a device, and closes it.
func (dev *device) unplug() {
	d := dev.d
	<-dev.refs.idle
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
}

// forgetMax is how often, at most, forget looks whether the kernel still lists a device.
const forgetMax = time.Second

// forget has librdmacm close a removed device, as soon as the kernel does not list it any more: it
// tells of a removal first, ends the connections through the device, and lists it until then. The
// library, when it looks for removed devices, opens all that are listed: it would have this one for
// ever, and the removal would wait for that.
func (d *domain) forget(name string) {
	for wait := time.Millisecond; ; wait = min(2*wait, forgetMax) {
		if names, err := deviceNames(); err == nil && !slices.Contains(names, name) {
			forgetDevices()
			return
		}
		if d.has(name) { // it is a new one, of which the library learns by itself, or goes once more
			return
		}
		select {
		case <-time.After(wait):
		case <-d.Context().Done():
			return
		}
	}
}

// has tells whether a device of a name is present.
func (d *domain) has(name string) bool {
	return slices.ContainsFunc(d.allDevices(), func(dev *device) bool { return dev.name == name })
}

// plugIn opens a new device and registers the domain's memory with it.
func (d *domain) plugIn(name string) (*device, error) {
	if asked := d.opts.Devices; len(asked) > 0 && !slices.Contains(asked, name) {
		return nil, errs.Newf(errs.NotFound, "verbs.connect", name,
			"the address leads to an RDMA device that this domain does not use")
	}
	d.plug.Lock()
	defer d.plug.Unlock()
	if dev := d.deviceNamed(name); dev != nil { // another call has opened it
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
			err = d.addDevice(dev)
		}
	}
	if err != nil {
		dev.free()
		return nil, err
	}
	return dev, nil
}

// plugInNew opens the devices that have appeared and have an active port, so that peers can be told
// of them before any has come through one. Those that do not open are none of the domain's.
func (d *domain) plugInNew() {
	names, err := deviceNames()
	if err != nil {
		return // the list is not known
	}
	for _, name := range names {
		dev := d.deviceNamed(name)
		if dev == nil && isActive(name) {
			dev, _ = d.plugIn(name)
		}
		if dev != nil {
			dev.refs.leave()
		}
	}
}

// isActive tells whether a device has an active port, without opening it.
func isActive(name string) bool {
	files, _ := filepath.Glob("/sys/class/infiniband/" + name + "/ports/*/state")
	return slices.ContainsFunc(files, func(file string) bool {
		text, _ := os.ReadFile(file) // it may be gone
		return strings.Contains(string(text), "ACTIVE")
	})
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

// addDevice registers the domain's memory with a device and adds it to the domain, with a reference
// for the caller. plug is held, so that no memory is registered meanwhile.
func (d *domain) addDevice(dev *device) error {
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
	dev.refs.enter()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.devices = append(d.devices, dev)
	return nil
}

// deviceNamed finds a present device and takes a reference to it: refs.leave releases it.
func (d *domain) deviceNamed(name string) *device {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, dev := range d.devices {
		if dev.name == name && dev.refs.enter() {
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

// allDevices returns the present devices.
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

// retireMissing retires the devices that are gone without an event.
func (d *domain) retireMissing() {
	names, err := deviceNames()
	if err != nil {
		return // the list is not known
	}
	for _, dev := range d.allDevices() {
		if !slices.Contains(names, dev.name) {
			dev.retire()
		}
	}
}
