package connlimit

import (
	"fmt"
	"net"
	"testing"
	"time"
)

// TestAllConnections: beyond the bound newcomers are refused, unless one that has asked nothing
// makes room.
func TestAllConnections(t *testing.T) {
	g := New(nil, Limits{Conns: 2, ConnsPerAddr: 9, Handshakes: 9}, nil)
	a, _, _ := g.admit(&net.TCPConn{}, "a")
	b, _, _ := g.admit(&net.TCPConn{}, "b")
	if in, _, why := g.admit(&net.TCPConn{}, "c"); in != nil || why == "" {
		t.Fatal("a third one")
	}
	_ = a.Close()
	_ = a.Close() // counted once
	if in, _, _ := g.admit(&net.TCPConn{}, "c"); in == nil {
		t.Fatal("no place is free")
	}
	if in, _, _ := g.admit(&net.TCPConn{}, "d"); in != nil {
		t.Fatal("a third one")
	}
	_ = b.Close()
	if g.conns != 1 || len(g.byAddr) != 1 || g.youngs != 1 {
		t.Fatalf("%d connections, %v, %d young", g.conns, g.byAddr, g.youngs)
	}
}

// TestTheOldestMakesRoom: of those that have asked nothing; those that have are left alone.
func TestTheOldestMakesRoom(t *testing.T) {
	g := New(nil, Limits{Conns: 9, ConnsPerAddr: 2, Handshakes: 2}, nil)
	first, _, _ := g.admit(&net.TCPConn{}, "a")
	second, _, _ := g.admit(&net.TCPConn{}, "b")
	g.grown(first)
	if in, oldest, _ := g.admit(&net.TCPConn{}, "c"); in == nil || oldest != nil {
		t.Fatalf("%v makes room for %v, and there was some", oldest, in)
	}
	if in, oldest, _ := g.admit(&net.TCPConn{}, "d"); in == nil || oldest != second {
		t.Fatalf("%v makes room for %v", oldest, in)
	}
	_, _, _ = g.admit(&net.TCPConn{}, "a")
	if in, _, why := g.admit(&net.TCPConn{}, "a"); in != nil || why == "" {
		t.Fatal("a third one of an address")
	}
}

// TestPace: one address is held to its pace, others are not, and memory is bounded.
func TestPace(t *testing.T) {
	now := time.Now()
	p := Pace{PerSecond: 1, Burst: 2, Now: func() time.Time { return now }}
	let := func(addr string, want ...bool) {
		t.Helper()
		for i, w := range want {
			if p.Allow(addr) != w {
				t.Fatalf("request %d of %s: %v", i, addr, !w)
			}
		}
	}
	let("a", true, true, false)
	let("b", true)
	now = now.Add(time.Second)
	let("a", true, false)
	for i := range 2 * addressesMax {
		p.Allow(fmt.Sprint(i))
	}
	if len(p.buckets) > addressesMax {
		t.Fatalf("%d addresses are remembered", len(p.buckets))
	}
}

func TestErrorLines(t *testing.T) {
	for line, want := range map[string][2]string{
		"http: TLS handshake error from 10.0.0.7:4711: EOF\n":    {"10.0.0.7", "EOF"},
		"http: TLS handshake error from [fe80::1]:1: tls: bad\n": {"fe80::1", "tls: bad"},
		"http: panic serving": {"unknown", "http: panic serving"},
	} {
		if addr, why := ParseErrorLine(line); addr != want[0] || why != want[1] {
			t.Errorf("%q: %q %q", line, addr, why)
		}
	}
}

func FuzzErrorLine(f *testing.F) {
	f.Add("http: TLS handshake error from 10.0.0.7:4711: EOF")
	f.Fuzz(func(t *testing.T, line string) { ParseErrorLine(line) })
}
