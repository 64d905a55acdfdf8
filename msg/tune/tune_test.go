package tune

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/shm"
	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/fabric/verbs"
	"github.com/sluice-storage/sluice/msg"
)

// provider opens domains that can reach each other at an address.
type provider struct {
	name, addr string
	open       func() (fabric.Domain, error)
}

// providers are those of this machine; vmtest/transport runs the test where there is an RDMA
// device.
func providers(t *testing.T) []provider {
	lab := sim.New(sim.Options{})
	all := []provider{
		{"sim", "server", func() (fabric.Domain, error) { return lab.Open(), nil }},
		{"shm", "unix:" + filepath.Join(t.TempDir(), "sock"),
			func() (fabric.Domain, error) { return shm.Open(shm.Options{}) }},
		{"tcp", "127.0.0.1:0", func() (fabric.Domain, error) { return tcp.Open(tcp.Options{}) }},
	}
	d, err := verbs.Open(verbs.Options{})
	if err != nil {
		return all
	}
	defer d.Close()
	dev, err := fabric.UpDevice(d.Connector())
	if err != nil {
		return all
	}
	for name, opts := range map[string]verbs.Options{
		"verbs": {}, "verbs-registrations": {NoWindows: true},
	} {
		all = append(all, provider{name, net.JoinHostPort(dev.Addrs[0], "0"),
			func() (fabric.Domain, error) { return verbs.Open(opts) }})
	}
	return all
}

// TestTune measures: what comes out must be good for a node.
func TestTune(t *testing.T) {
	for _, p := range providers(t) {
		t.Run(p.name, func(t *testing.T) {
			var nodes [2]*msg.Node
			var domain fabric.Domain
			for i := range nodes {
				var err error
				if domain, err = p.open(); err != nil {
					t.Fatal(err)
				}
				defer domain.Close()
				if nodes[i], err = msg.NewNode(Node(msg.Options{Domain: domain})); err != nil {
					t.Fatal(err)
				}
				defer nodes[i].Close()
			}
			sink, err := NewSink(nodes[0], Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer sink.Close() // its node is closed again before that does any harm
			defer nodes[0].Close()
			srv, err := nodes[0].Serve(p.addr, sink, msg.ServeOptions{})
			if err != nil {
				t.Fatal(err)
			}
			c, err := nodes[1].Dial(t.Context(), srv.Addr())
			if err != nil {
				t.Fatal(err)
			}
			l, err := Measure(t.Context(), c, Options{Calls: 5, Large: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v", l)
			if l.InlineMax < 512 || l.InlineMax > inlineMax || l.EagerMax > eagerMax ||
				l.Unit < 64<<10 || l.Unit > 2<<20 {
				t.Fatalf("%+v", l)
			}
			n, err := msg.NewNode(msg.Options{Domain: domain,
				Limits: map[string]msg.Limits{c.Provider(): l}})
			if err != nil {
				t.Fatalf("limits that were measured are refused: %v", err)
			}
			_ = n.Close()
		})
	}
}
