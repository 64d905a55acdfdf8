package fabric

import "github.com/sluice-storage/sluice/errs"

// Device is something that connections go through: a network interface, a port of an RDMA device.
type Device struct {
	Name  string   // as the host calls it: "eth0", "mlx5_0"
	Port  int      // from 1; 0 where devices have none
	Up    bool     // it can carry connections now
	Addrs []string // hosts (without a port) that Listen and Dial can use, if it has any
	MTU   int      // bytes; 0: not known
}

// UpDevice is the first device that is up and has an address. Without one it is errs.Unsupported.
func UpDevice(c Connector) (Device, error) {
	all, err := c.Devices()
	if err != nil {
		return Device{}, err
	}
	for _, d := range all {
		if d.Up && len(d.Addrs) > 0 {
			return d, nil
		}
	}
	return Device{}, errs.Newf(errs.Unsupported, "fabric.UpDevice", "",
		"none of %d devices is up and has an address", len(all))
}
