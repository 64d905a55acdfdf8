package exio_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-storage/sluice/exio"
	"github.com/sluice-storage/sluice/exio/exiotest"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/shm"
	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/fabric/verbs"
	"github.com/sluice-storage/sluice/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// options are small, so that the tests reach the bounds.
var options = exio.Options{EagerBytes: 4000, Eager: 8, Requests: 4, Queue: 256}

const memoryMax = 1 << 30

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ends are the domains of the two ends; b listens at addr, a dials.
type ends struct {
	a, b   fabric.Domain
	source mem.Source // of a
	addr   string
}

// connect makes a rig of two domains. swap has the side that listens write.
func connect(t *testing.T, e ends, swap bool) *exiotest.Rig {
	t.Helper()
	memory := [2]*exio.Memory{}
	var err error
	memory[0], err = exio.NewMemory(e.source, memoryMax, e.a)
	must(t, err)
	memory[1], err = exio.NewMemory(nil, memoryMax, e.b)
	must(t, err)
	ln, err := e.b.Connector().Listen(e.addr)
	must(t, err)
	type result struct {
		h   exio.Handle
		err error
	}
	accepted := make(chan result, 1)
	go func() {
		link := exio.Link{Domain: e.b, Memory: memory[1], Options: options}
		h, err := link.Accept(context.Background(), ln, nil)
		accepted <- result{h, err}
	}()
	link := exio.Link{Domain: e.a, Memory: memory[0], Source: e.source, Options: options}
	a, err := link.Dial(context.Background(), ln.Addr().String(), [32]byte{})
	must(t, err)
	b := <-accepted
	must(t, b.err)
	must(t, ln.Close())
	r := &exiotest.Rig{A: a, B: b.h, Options: options}
	if swap {
		r.A, r.B = r.B, r.A
	}
	r.Alloc = func(side, bytes int) []byte {
		if swap {
			side = 1 - side
		}
		got, err := memory[side].Alloc(bytes)
		must(t, err)
		return got
	}
	t.Cleanup(func() {
		must(t, a.Close())
		must(t, b.h.Close())
		for i, d := range []fabric.Domain{e.a, e.b} {
			must(t, memory[i].Close())
			must(t, d.Close())
		}
	})
	return r
}

func openShm(t *testing.T) ends {
	dir, err := os.MkdirTemp("", "exio")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	arenas := shm.NewArenas()
	a, err := shm.Open(shm.Options{Arenas: arenas})
	must(t, err)
	b, err := shm.Open(shm.Options{})
	must(t, err)
	return ends{a, b, arenas, "unix:" + filepath.Join(dir, "s")}
}

func openTCP(t *testing.T) (e ends) {
	var err error
	quiet := tcp.Options{Log: slog.New(slog.DiscardHandler)}
	e.a, err = tcp.Open(quiet)
	must(t, err)
	e.b, err = tcp.Open(quiet)
	must(t, err)
	e.addr = "127.0.0.1:0"
	return e
}

func openSim(opts sim.Options) func(t *testing.T) ends {
	return func(*testing.T) ends {
		network := sim.New(opts)
		return ends{a: network.Open(), b: network.Open(), addr: "b"}
	}
}

// TestConformance holds every driver that runs here against the suite. vmtest/transport runs it
// with verbs, in a virtual machine that has a device.
func TestConformance(t *testing.T) {
	type driver struct {
		name string
		open func(t *testing.T) ends
	}
	all := []driver{
		{"sim", openSim(sim.Options{MaxDelay: 5, Seed: 3})},
		{"sim-regions", openSim(sim.Options{RegionsOnly: true, RefusalEnds: true})},
		{"tcp", openTCP},
		{"shm", openShm},
	}
	if addr := verbsAddress(); addr != "" {
		all = append(all, driver{"verbs", openVerbs(addr, verbs.Options{})},
			driver{"verbs-registrations", openVerbs(addr, verbs.Options{NoWindows: true})})
	}
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			for _, swap := range []bool{false, true} {
				name := "dialler writes"
				if swap {
					name = "listener writes"
				}
				t.Run(name, func(t *testing.T) {
					exiotest.Run(t, func(t *testing.T) *exiotest.Rig { return connect(t, c.open(t), swap) })
				})
			}
		})
	}
	t.Run("socket", func(t *testing.T) { exiotest.Run(t, openSockets) })
	t.Run("file", func(t *testing.T) { exiotest.Run(t, openFile) })
}

// verbsAddress is where this machine's RDMA device listens; empty without a device.
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

func openVerbs(addr string, opts verbs.Options) func(t *testing.T) ends {
	return func(t *testing.T) (e ends) {
		var err error
		e.a, err = verbs.Open(opts)
		must(t, err)
		e.b, err = verbs.Open(opts)
		must(t, err)
		e.addr = addr
		return e
	}
}

func heap(_, bytes int) []byte { return make([]byte, bytes) }

func openSockets(t *testing.T) *exiotest.Rig {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	near, err := net.Dial("tcp", ln.Addr().String())
	must(t, err)
	far, err := ln.Accept()
	must(t, err)
	a, err := exio.NewSocket(near, options)
	must(t, err)
	b, err := exio.NewSocket(far, options)
	must(t, err)
	t.Cleanup(func() { must(t, a.Close()); must(t, b.Close()) })
	return &exiotest.Rig{A: a, B: b, Alloc: heap, Options: options}
}

func openFile(t *testing.T) *exiotest.Rig {
	name := filepath.Join(t.TempDir(), "file")
	f, err := os.Create(name)
	must(t, err)
	a := exio.NewFile(f, exio.FileOptions{Name: name})
	g, err := os.Open(name)
	must(t, err)
	b := exio.NewFile(g, exio.FileOptions{Name: name})
	t.Cleanup(func() { must(t, a.Close()); must(t, b.Close()) })
	return &exiotest.Rig{A: a, B: b, Stored: true, Alloc: heap, Options: options}
}
