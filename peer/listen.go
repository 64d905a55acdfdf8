package peer

import (
	"net"
	"strings"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/msg"
)

// ServeHost is Serve at a tcp address and, for faster connections, at as many other places as are
// available: at a unix socket, a path or "@" and a name, for clients of this host, and at the first
// RDMA device that is up.
func (n *Network) ServeHost(listen, socket string, h msg.Handler, opts msg.ServeOptions) (
	*msg.Server, error,
) {
	places := append([]string{TCP + ":" + listen}, n.otherPlaces(socket)...)
	var failed []error
	for {
		s, err := n.Serve(strings.Join(places, ","), h, opts)
		if err == nil {
			for _, err := range failed {
				n.log.Warn("not all providers can be listened at", "err", err)
			}
			return s, nil
		}
		if len(places) == 1 {
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
			device, err := fabric.UpDevice(s.domain.Connector())
			if err != nil {
				n.log.Warn("nobody can come by RDMA", "err", err)
				continue
			}
			places = append(places, Verbs+":"+net.JoinHostPort(device.Addrs[0], "0"))
		}
	}
	return places
}
