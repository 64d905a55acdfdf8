package plain

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/bench"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func TestPlainStreams(t *testing.T) {
	ln := listen(t)
	go Serve(ln)
	addr := ln.Addr().String()
	const d = 5 * time.Millisecond
	for name, s := range map[string]bench.Measure{
		"writes":   Writes(addr, 64*bench.KiB),
		"reads":    Reads(addr, 64*bench.KiB),
		"requests": Trades(addr, 8, 8, 4),
		"answers":  Trades(addr, AskBytes, 4*bench.KiB, 4),
		"takes":    Trades(addr, 4*bench.KiB, AskBytes, 4),
	} {
		m, err := s(t.Context(), d)
		if err != nil || m.Ops < 1 || m.Took < d || m.Bytes < int64(8*m.Ops) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s(ctx, time.Hour); err == nil {
			t.Errorf("%s: goes on although it was given up", name)
		}
	}
	if r, err := Pings(addr, 64)(t.Context(), d); err != nil || r.Value <= 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestPlainPeerRefusesNonsense(t *testing.T) {
	ln := listen(t)
	go Serve(ln)
	for _, ask := range [][2]int{{doEcho, 0}, {doSink, sizeMax + 1}, {9, 8}} {
		conn, err := dial(t.Context(), ln.Addr().String(), ask[0], ask[1])
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, conn); n != 0 || err != nil {
			t.Errorf("%v: %d bytes came, %v", ask, n, err)
		}
		conn.Close()
	}
}
