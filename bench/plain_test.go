package bench

import (
	"context"
	"io"
	"net"
	"testing"
	"time"
)

func TestPlainStreams(t *testing.T) {
	ln := listen(t)
	go ServePlain(ln)
	addr := ln.Addr().String()
	const d = 5 * time.Millisecond
	for name, s := range map[string]stream{
		"writes":   plainWrites(addr, 64*kib),
		"reads":    plainReads(addr, 64*kib),
		"requests": plainRequests(addr, 8, 4),
	} {
		m, err := s(t.Context(), d)
		if err != nil || m.ops < 1 || m.took < d || m.bytes < int64(8*m.ops) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s(ctx, time.Hour); err == nil {
			t.Errorf("%s: goes on although it was given up", name)
		}
	}
	c := plainPings(addr, 64)
	defer c.Close()
	if v, err := c.Measure(t.Context(), d); err != nil || v <= 0 {
		t.Errorf("%v, %v", v, err)
	}
}

func TestPlainPeerRefusesNonsense(t *testing.T) {
	ln := listen(t)
	go ServePlain(ln)
	for _, ask := range [][2]int{{plainEcho, 0}, {plainSink, plainMax + 1}, {9, 8}} {
		conn, err := dialPlain(t.Context(), ln.Addr().String(), ask[0], ask[1])
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, conn); n != 0 || err != nil {
			t.Errorf("%v: %d bytes came, %v", ask, n, err)
		}
		conn.Close()
	}
}

func TestMeters(t *testing.T) {
	ln := listen(t)
	go ServeCPU(ln)
	peer := PeerMeter(ln.Addr().String())
	before, err := peer()
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); {
		// Uses the processor, and has its turn even on a busy machine.
	}
	own, err := OwnCPU()
	if err != nil {
		t.Fatal(err)
	}
	after, err := peer()
	if err != nil || own <= before || after < own {
		t.Errorf("%v, then %v, then %v, %v", before, own, after, err)
	}
	ln.Close()
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	if v, err := PeerMeter(dead.Addr().String())(); err == nil {
		t.Errorf("%v of nobody", v)
	}
}
