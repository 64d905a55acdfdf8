package msg

import (
	"net"
	"testing"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/fabric/verbs"
)

// verbsProviders are those on this machine's RDMA device: with memory windows, and with short-lived
// registrations in their place. There are none where there is no device; vmtest/transport runs the
// tests with them in a virtual machine that has one.
func verbsProviders() []provider {
	addr := verbsAddress()
	if addr == "" {
		return nil
	}
	on := func(name string, opts verbs.Options) provider {
		return provider{name: name, addr: addr, open: func(t testing.TB, _ uint64) (
			*sim.Net, fabric.Domain, fabric.Domain,
		) {
			var doms [2]fabric.Domain
			for i := range doms {
				d, err := verbs.Open(opts)
				if err != nil {
					t.Fatal(err)
				}
				doms[i] = d
			}
			return nil, doms[0], doms[1]
		}}
	}
	return []provider{
		on("verbs", verbs.Options{}), on("verbs-registrations", verbs.Options{NoWindows: true}),
	}
}

// verbsAddress is where a server of this machine's RDMA device listens; empty without a device.
func verbsAddress() string {
	d, err := verbs.Open(verbs.Options{})
	if err != nil {
		return ""
	}
	defer d.Close()
	dev, err := fabric.UpDevice(d.Connector())
	if err != nil {
		return ""
	}
	return net.JoinHostPort(dev.Addrs[0], "0")
}

// and adds the providers of real networks to some of sim: tcp, and verbs where there is a device.
func and(some ...provider) []provider {
	return append(append(some, tcpProvider()), verbsProviders()...)
}
