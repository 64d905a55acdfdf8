package config

import (
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/sluice-storage/sluice/internal/size"
)

// List is a list of strings, which may be written as one string if it has one.
type List []string

// Size is a number of bytes as it was written: 4096, 64K, 10GiB. Empty: the default.
type Size string

// Bytes is the number; 0 for an empty one.
func (s Size) Bytes() int64 {
	n, _ := size.Parse(string(s)) // a Config has none that is wrong
	return n
}

// Duration is written like 30s or 1h30m.
type Duration time.Duration

// String implements fmt.Stringer.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText implements encoding.TextMarshaler, for those who print a Config.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// cutUnix is the path of unix:PATH.
func cutUnix(addr string) (path string, ok bool) { return strings.CutPrefix(addr, "unix:") }

// IsLoopback tells whether only this host reaches an address of the form HOST:PORT.
func IsLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// Choose picks from addresses of a host one in each network: the first that lies in it. missing are
// networks in which it has none.
func Choose(networks List, addrs []netip.Addr) (chosen []netip.Addr, missing []string) {
	for _, text := range networks {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			missing = append(missing, text)
			continue
		}
		found := false
		for _, a := range addrs {
			if found = network.Contains(a.Unmap()); found {
				chosen = append(chosen, a.Unmap())
				break
			}
		}
		if !found {
			missing = append(missing, text)
		}
	}
	return chosen, missing
}
