package sim

import "github.com/sluice-storage/sluice/fabric"

// Devices is the net itself, under the domain's name.
func (c connector) Devices() ([]fabric.Device, error) {
	return []fabric.Device{{Name: "sim", Up: true, Addrs: []string{c.d.name}}}, nil
}
