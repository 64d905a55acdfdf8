package peer

import (
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/msg"
)

// TestNearPlacesFirst: networks of one's own, then others, loopback last; else the server's order.
func TestNearPlacesFirst(t *testing.T) {
	own := []netip.Prefix{netip.MustParsePrefix("10.1.0.7/16"), netip.MustParsePrefix("127.0.0.1/8"),
		netip.MustParsePrefix("fd00::7/64")}
	for _, row := range []struct{ places, want string }{
		{"10.2.0.1:1 10.1.9.9:2", "10.1.9.9:2 10.2.0.1:1"},
		{"10.1.0.1:1 10.1.0.2:1", "10.1.0.1:1 10.1.0.2:1"},
		{"127.0.0.1:1 10.2.0.1:1 10.1.0.1:1", "10.1.0.1:1 10.2.0.1:1 127.0.0.1:1"},
		{"127.0.0.2:1 127.0.0.1:1", "127.0.0.2:1 127.0.0.1:1"},
		{"host:1 [fd00::1]:1", "[fd00::1]:1 host:1"},
		{"unix:/x", "unix:/x"},
	} {
		got := prefer(strings.Fields(row.places), own)
		if strings.Join(got, " ") != row.want {
			t.Errorf("%s became %v, want %s", row.places, got, row.want)
		}
	}
}

// devices is a domain that has them.
type devices struct {
	fabric.Domain
	list []fabric.Device
}

func (d *devices) Connector() fabric.Connector { return deviceList{d.Domain.Connector(), d} }

type deviceList struct {
	fabric.Connector
	d *devices
}

func (c deviceList) Devices() ([]fabric.Device, error) { return c.d.list, nil }

// TestAllDevicesAreOffered: one that listens on all addresses is at those of the devices that are
// up, all of them, and perhaps where who asks has come to.
func TestAllDevicesAreOffered(t *testing.T) {
	sim := newSteps(t, nil)
	d := &devices{Domain: &named{Domain: sim.fast.Open(), name: Verbs}}
	t.Cleanup(func() { _ = d.Close() })
	at := msg.Place{Domain: d, Addr: "0.0.0.0:7"}
	if got := told(at); !slices.Equal(got, []string{"0.0.0.0:7"}) {
		t.Fatalf("no devices: %v", got)
	}
	d.list = []fabric.Device{{Name: "a", Up: true, Addrs: []string{"10.1.0.1", "fe80::1"}},
		{Name: "b", Addrs: []string{"10.2.0.1"}}, {Name: "c", Up: true, Addrs: []string{"10.3.0.1"}}}
	if got := told(at); !slices.Equal(got, []string{"10.1.0.1:7", "10.3.0.1:7", "0.0.0.0:7"}) {
		t.Fatalf("two devices: %v", got)
	}
	if got := allDevices(d.Connector()); got != "0.0.0.0:0" {
		t.Fatalf("listens at %s", got)
	}
	d.list = []fabric.Device{{Name: "a", Up: true, Addrs: []string{"fd00::1"}}}
	if got := allDevices(d.Connector()); got != "[::]:0" {
		t.Fatalf("listens at %s", got)
	}
}

// TestAnnounce: others are told all addresses that they can use.
func TestAnnounce(t *testing.T) {
	s := newSteps(t, nil)
	srv := s.serve(t, "tcp:127.0.0.1:1,tcp:10.1.0.1:1,tcp:10.2.0.1:1,shm:/x")
	if got := s.server.Announce(srv); got != "tcp:10.1.0.1:1,tcp:10.2.0.1:1" {
		t.Errorf("announced %s", got)
	}
	if got := s.server.Announce(s.serve(t, "tcp:127.0.0.1:2,shm:/y")); got != "127.0.0.1:2" {
		t.Errorf("announced %s", got)
	}
	all := s.server.Announce(s.serve(t, "tcp:0.0.0.0:3"))
	if slices.ContainsFunc(ownHosts(true), func(h string) bool {
		return !strings.Contains(all, net.JoinHostPort(h, "3"))
	}) {
		t.Errorf("announced %s of %v", all, ownHosts(true))
	}
}

// TestADeadPlaceCostsLittle: one that refuses costs nothing, one that is mute a moment, and both
// are remembered.
func TestADeadPlaceCostsLittle(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0") // it accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	s := &steps{server: onHost(t, nil, nil), client: onHost(t, nil, nil)}
	srv := s.serve(t, "tcp:127.0.0.1:0")
	addr := "tcp:" + gone.Addr().String() + ",tcp:" + mute.Addr().String() + ",tcp:" + srv.Addr()
	c := s.dialAndUse(t, addr)
	steps := s.client.Ladder(c)
	at := func(i int) string { return steps[len(steps)-3+i].Addr }
	if at(0) != gone.Addr().String() || at(1) != mute.Addr().String() || at(2) != srv.Addr() ||
		errs.KindOf(steps[len(steps)-2].Err) != errs.TimedOut || !s.client.MayClimb(c) {
		t.Fatalf("%v, may climb %v", steps, s.client.MayClimb(c))
	}
	base := s.client.base()
	for _, at := range []string{gone.Addr().String(), mute.Addr().String()} {
		if _, ok := s.client.misses.list[missKey(base, at)]; !ok {
			t.Errorf("%s is not remembered", at)
		}
	}
	s.client.misses.note(missKey(base, mute.Addr().String()), errs.New(errs.TimedOut, "x", "", nil))
	k := climb{net: s.client, addr: addr}
	k.places, _ = parseAddress(addr, s.client.providers())
	if spots := k.baseSpots(); spots[2].at != mute.Addr().String() || spots[2].rank != 1 {
		t.Fatalf("one that has failed is not the last: %+v", spots)
	}
}

// proxy passes connections on to a server, and can be cut.
type proxy struct {
	t      *testing.T
	at, to string

	cut func() // ends it, with all that goes through it
}

func (p *proxy) open() {
	p.t.Helper()
	ln, err := net.Listen("tcp", p.at)
	if err != nil {
		p.t.Fatal(err)
	}
	p.at = ln.Addr().String()
	conns := make(chan net.Conn, 100)
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				close(conns)
				return
			}
			out, err := net.Dial("tcp", p.to)
			if err != nil {
				in.Close()
				continue
			}
			conns <- in
			conns <- out
			go func() { _, _ = io.Copy(out, in) }()
			go func() { _, _ = io.Copy(in, out) }()
		}
	}()
	p.t.Cleanup(func() { ln.Close() })
	stop := make(chan []net.Conn)
	go func() {
		var all []net.Conn
		for c := range conns {
			all = append(all, c)
		}
		stop <- all
	}()
	p.cut = func() {
		ln.Close()
		for _, c := range <-stop {
			c.Close()
		}
	}
}

// TestALinkThatDies: requests go on by another network, and come back when the first is there
// again, while what is under way is not disturbed.
func TestALinkThatDies(t *testing.T) {
	s := &steps{server: onHost(t, nil, nil), client: onHost(t, nil, nil)}
	srv := s.serve(t, "tcp:127.0.0.1:0")
	way := &proxy{t: t, at: "127.0.0.1:0", to: srv.Addr()}
	way.open()
	addr := "tcp:" + way.at + ",tcp:" + srv.Addr()
	pool := poolOf(t, s.client, addr)
	at := func(c *msg.Conn) string { return s.client.wayOf(c).at }
	c := mustGet(t, pool)
	if at(c) != way.at {
		t.Fatalf("by %s", at(c))
	}
	way.cut()
	await(t, func() bool { return c.Err() != nil })
	if c = mustGet(t, pool); at(c) != srv.Addr() {
		t.Fatalf("by %s", at(c))
	}
	way.open()
	await(t, func() bool { return at(mustGet(t, pool)) == way.at })
	await(t, func() bool { return c.Err() != nil }) // nobody needs it
	if s.client.Climbed()[TCP] != 1 {
		t.Fatalf("counted %v", s.client.Climbed())
	}
	way.cut()
}
