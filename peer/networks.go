package peer

import (
	"net"
	"net/netip"
	"slices"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/msg"
)

// A host may have several networks. A server tells all of its addresses, its best network first;
// who dials tries those in networks of its own first, then the others, and addresses of loopback
// last: on another host they lead to somebody else.

// How near a place is, nearest first.
const (
	nearHere  = iota // an address in a network that an interface of this host is in
	nearAway         // any other: by a router, or a name
	nearNever        // loopback, of a server that has other addresses
)

// prefer orders places, each HOST:PORT or what else a provider takes, by how near they are. Among
// those that are equally near the server's order stays. own are the networks of this host.
func prefer(places []string, own []netip.Prefix) []string {
	others := slices.ContainsFunc(places, func(at string) bool { return !isLoopback(at) })
	near := func(at string) int {
		ip, ok := hostOf(at)
		switch {
		case others && isLoopback(at):
			return nearNever
		case ok && slices.ContainsFunc(own, func(p netip.Prefix) bool { return p.Contains(ip) }):
			return nearHere
		}
		return nearAway
	}
	places = slices.Clone(places)
	slices.SortStableFunc(places, func(a, b string) int { return near(a) - near(b) })
	return places
}

// hostOf is the address of a place that has one: HOST:PORT with a number as host.
func hostOf(at string) (netip.Addr, bool) {
	host, _, err := net.SplitHostPort(at)
	if err != nil {
		return netip.Addr{}, false
	}
	ip, err := netip.ParseAddr(host)
	return ip.Unmap(), err == nil
}

func isLoopback(at string) bool {
	ip, ok := hostOf(at)
	return ok && ip.IsLoopback()
}

// ownNetworks are the networks that this host's interfaces are in, in their order. A host that
// cannot tell has none: then the server's order decides.
func ownNetworks() []netip.Prefix {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var own []netip.Prefix
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, p)
		}
	}
	return own
}

// told is where others find what listens at a place. One that listens on all addresses is at those
// that there are now. A device may be there that is not known of yet, because it came later: so
// whoever asks may also try where it has come to already, for which the place itself stands.
func told(p msg.Place) (places []string) {
	host, port, err := net.SplitHostPort(p.Addr)
	ip, _ := netip.ParseAddr(host)
	if err != nil || !ip.IsUnspecified() {
		return []string{p.Addr}
	}
	device := p.Domain.Caps().Provider != TCP
	hosts := ownHosts
	if device {
		hosts = func(only4 bool) []string { return deviceHosts(p.Domain.Connector(), only4) }
	}
	for _, h := range hosts(ip.Is4()) {
		places = append(places, net.JoinHostPort(h, port))
	}
	if device || len(places) == 0 {
		places = append(places, p.Addr)
	}
	return places
}

// ownHosts are the addresses of this host that others can use, IPv4 first; only4 leaves out the
// rest.
func ownHosts(only4 bool) []string {
	var four, six []string
	for _, p := range ownNetworks() {
		switch a := p.Addr(); {
		case !a.IsGlobalUnicast():
		case a.Is4():
			four = append(four, a.String())
		case !only4:
			six = append(six, a.String())
		}
	}
	return append(four, six...)
}

// deviceHosts are the addresses of the devices that are up now. A device that only has addresses
// of its link has these: they work where both ends have the interface by that name.
func deviceHosts(c fabric.Connector, only4 bool) []string {
	devices, err := c.Devices()
	if err != nil {
		return nil
	}
	var hosts []string
	for _, d := range devices {
		if !d.Up {
			continue
		}
		for _, h := range d.Addrs {
			ip, err := netip.ParseAddr(h)
			four := err == nil && ip.Is4()
			if (four || !only4) && !slices.Contains(hosts, h) {
				hosts = append(hosts, h)
			}
		}
	}
	return hosts
}

// Announce is the address by which other hosts reach a server of the network: its places of the
// last step, each where others find it, and without loopback where there are others. What else it
// offers it tells those who come.
func (n *Network) Announce(s *msg.Server) string {
	base, last := n.base(), n.base().caps.Provider
	var all []place
	for _, p := range s.Places() {
		if p.Domain != base.domain {
			continue
		}
		for _, at := range told(p) {
			all = append(all, place{provider: last, at: at})
		}
	}
	if slices.ContainsFunc(all, func(p place) bool { return !isLoopback(p.at) }) {
		all = slices.DeleteFunc(all, func(p place) bool { return isLoopback(p.at) })
	}
	all = slices.Compact(all)
	for len(all) > maxPlaces || len(formatAddress(all, last)) > maxAddress {
		all = all[:len(all)-1]
	}
	if len(all) == 0 {
		return s.Addr()
	}
	return formatAddress(all, last)
}
