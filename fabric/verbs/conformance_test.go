//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/fabrictest"
)

// fatalRefusal is why cases that go on after a refused access cannot run: a device ends the
// connection then. TestRefusedAccess and its neighbours hold what is promised instead.
const fatalRefusal = "a refused access ends the connection on RDMA devices: " +
	"errs.Perm for the request, errs.Disconnected for what else is pending"

func excluded() map[string]string {
	all := map[string]string{}
	for _, name := range []string{
		"access without the right is refused",
		"a key is bound to one endpoint",
		"a revoked key is refused",
		"revoke during writes",
		"revoke during reads",
		"region close",
		"failures always complete, in order",
		"random operations against a model",
	} {
		all[name] = fatalRefusal
	}
	return all
}

// address is one of this machine that an RDMA device has.
func address(t testing.TB) string {
	t.Helper()
	if ok, why := Available(); !ok {
		t.Skipf("needs an RDMA device: %s", why)
	}
	names, err := filepath.Glob("/sys/class/infiniband/*/ports/*/gid_attrs/ndevs/0")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		ifi, err := net.InterfaceByName(strings.TrimSpace(string(text)))
		if err != nil {
			continue
		}
		addrs, err := ifi.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil {
				return ip.IP.String()
			}
		}
	}
	t.Skip("needs an RDMA device with an IPv4 address")
	return ""
}

func config(t testing.TB, opts Options) fabrictest.Config {
	addr := net.JoinHostPort(address(t), "0")
	return fabrictest.Config{
		Open: func(t testing.TB) (fabric.Domain, func() string) {
			d, err := Open(opts)
			if err != nil {
				t.Fatal(err)
			}
			return d, func() string { return addr }
		},
		Exclude: excluded(),
	}
}

func TestConformance(t *testing.T) {
	t.Run("windows", func(t *testing.T) { fabrictest.Run(t, config(t, Options{})) })
	t.Run("registrations", func(t *testing.T) {
		fabrictest.Run(t, config(t, Options{NoWindows: true, Spin: -1}))
	})
}
