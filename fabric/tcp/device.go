package tcp

import (
	"net"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// Devices are the network interfaces of this host; of a domain that may not listen beyond loopback
// only those of loopback.
func (c connector) Devices() ([]fabric.Device, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, errs.Wrap("tcp.Devices", "", err)
	}
	var devices []fabric.Device
	for _, ifi := range all {
		if c.d.opts.Security == nil && ifi.Flags&net.FlagLoopback == 0 {
			continue
		}
		addrs, err := ifi.Addrs()
		if err != nil {
			return nil, errs.Wrap("tcp.Devices", ifi.Name, err)
		}
		dev := fabric.Device{Name: ifi.Name, Up: ifi.Flags&net.FlagRunning != 0, MTU: ifi.MTU}
		for _, a := range addrs {
			if ip, ok := a.(*net.IPNet); ok {
				dev.Addrs = append(dev.Addrs, ip.IP.String())
			}
		}
		devices = append(devices, dev)
	}
	return devices, nil
}
