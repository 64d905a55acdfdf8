package peer

import (
	"strings"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/msg"
)

// ServeHost is Serve at a tcp address, or several with commas between them, the best network first,
// and, for faster connections, at as many other places as are available: at a unix socket, a path
// or "@" and a name, for clients of this host, and at all RDMA devices, those that come later
// included. See Announce for what to tell others.
func (n *Network) ServeHost(listen, socket string, h msg.Handler, opts msg.ServeOptions) (
	*msg.Server, error,
) {
	var places []place
	for _, addr := range strings.Split(listen, ",") {
		places = append(places, place{provider: TCP, at: addr})
	}
	asked := len(places)
	for _, addr := range n.otherPlaces(socket) {
		other, err := parseAddress(addr, n.providers())
		if err != nil {
			return nil, err
		}
		places = append(places, other...)
	}
	var failed []error
	for {
		s, err := n.servePlaces(places, h, opts)
		if err == nil {
			for _, err := range failed {
				n.log.Warn("not all providers can be listened at", "err", err)
			}
			return s, nil
		}
		if len(places) == asked {
			return nil, err
		}
		failed = append(failed, err)
		places = places[:len(places)-1]
	}
}

// otherPlaces are those besides tcp's.
func (n *Network) otherPlaces(socket string) []string {
	var places []string
	for i := range n.steps {
		switch s := &n.steps[i]; s.caps.Provider {
		case SHM:
			places = append(places, SHM+":"+socket)
		case Verbs:
			places = append(places, Verbs+":"+allDevices(s.domain.Connector()))
		}
	}
	return places
}

// allDevices is an address at which all devices listen: IPv4, unless those that are up have none.
func allDevices(c fabric.Connector) string {
	all := deviceHosts(c, false)
	if four := deviceHosts(c, true); len(four) == 0 && len(all) > 0 {
		return "[::]:0"
	}
	return "0.0.0.0:0"
}
