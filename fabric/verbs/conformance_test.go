//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"net"
	"testing"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/fabrictest"
)

// address is a host of this machine that an RDMA device has.
func address(t testing.TB) string {
	t.Helper()
	if ok, why := Available(); !ok {
		t.Skipf("needs an RDMA device: %s", why)
	}
	d, err := Open(Options{})
	fatal(t, err)
	defer func() { fatal(t, d.Close()) }()
	dev, err := fabric.UpDevice(d.Connector())
	if err != nil {
		t.Skipf("needs an RDMA device with an address: %v", err)
	}
	return dev.Addrs[0]
}

func config(t testing.TB, opts Options) fabrictest.Config {
	addr := net.JoinHostPort(address(t), "0")
	open := func(t testing.TB, opts Options) (fabric.Domain, func() string) {
		t.Helper()
		d, err := Open(opts)
		fatal(t, err)
		return d, func() string { return addr }
	}
	return fabrictest.Config{
		Patience: patience,
		Open: func(t testing.TB) (fabric.Domain, func() string) {
			t.Helper()
			return open(t, opts)
		},
		OpenTokens: func(t testing.TB, tokens *fabric.Tokens) (fabric.Domain, func() string) {
			t.Helper()
			asking := opts
			asking.Tokens = tokens
			return open(t, asking)
		},
	}
}

// modes are the ways to grant.
func modes() map[string]Options {
	return map[string]Options{"windows": {}, "registrations": {NoWindows: true}}
}

func TestConformance(t *testing.T) {
	for name, opts := range modes() {
		t.Run(name, func(t *testing.T) {
			cfg := config(t, opts)
			if opts.NoWindows {
				cfg.Exclude = map[string]string{
					"a key is bound to one endpoint": "without memory windows a key is bound to " +
						"the device's protection domain, that is to all endpoints of the domain",
				}
			}
			fabrictest.Run(t, cfg)
		})
	}
}

func TestSteadyAllocs(t *testing.T) {
	for name, opts := range modes() {
		t.Run(name, func(t *testing.T) { fabrictest.SteadyAllocs(t, config(t, opts)) })
	}
}
