package net

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/benchtest"
	netfabric "github.com/sluice-storage/sluice/bench/fabric"
	"github.com/sluice-storage/sluice/bench/partner"
	"github.com/sluice-storage/sluice/bench/plain"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
)

const mib = bench.MiB

// netHere is bench net with a peer in this process.
func netHere(t *testing.T) *Bench {
	t.Helper()
	open := benchtest.Opener(t)
	b := &Bench{Providers: []string{TCP, Shm}, Open: open,
		Peer: benchtest.Serve(t, func(err error) { t.Log("peer:", err) }, Jobs(open),
			netfabric.Jobs(open))}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// named are the cases that others rely on.
func named() []string {
	return []string{"rtt-8", "rtt-8-spin", "rate-4k-d32", "bulk-1m", "contig-16x64k",
		"gather-16x64k", "pack-16x64k"}
}

// TestNetMeasures runs every case.
func TestNetMeasures(t *testing.T) {
	n := netHere(t)
	b := bench.Budget{Rounds: 1, Round: time.Millisecond, Note: func(text string) { t.Error(text) }}
	rows, err := bench.RunAll(t.Context(), b, n.Cases())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range named() {
		for _, p := range n.Providers {
			if !slices.ContainsFunc(rows, func(r bench.Row) bool {
				return r.Case == name && strings.HasPrefix(r.Provider, p)
			}) {
				t.Errorf("no row of %s by %s", name, p)
			}
		}
	}
	for _, r := range rows {
		if r.Bench != "net" || !(r.Value > 0) || math.IsInf(r.Value, 0) || r.Low > r.Value ||
			r.High < r.Value || r.Depth < 1 || r.Size < 1 || r.Ratio < 0 || math.IsInf(r.Ratio, 0) ||
			r.Ceiling != "" && !(r.Ratio > 0) {
			t.Errorf("%+v", r)
		}
	}
	checkCosts(t, rows)
	if all := bench.Judge(Promises(), rows); len(all) < 13 {
		t.Errorf("%d figures: %+v", len(all), all)
	}
}

// checkCosts looks at what rows say besides their value.
func checkCosts(t *testing.T, rows []bench.Row) {
	t.Helper()
	find := func(name, provider string) bench.Row {
		i := slices.IndexFunc(rows, func(r bench.Row) bool {
			return r.Case == name && r.Provider == provider
		})
		if i < 0 {
			t.Fatalf("no row of %s by %s", name, provider)
		}
		return rows[i]
	}
	var b bytes.Buffer
	some := []bench.Row{find("bulk-1m", Shm), find("rate-4k-d32", Shm)}
	if err := bench.WriteJSON(&b, some); err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"case", "provider", "progress", "depth", "size", "metric",
		"value", "low", "high", "ratio", "cpu_s_per_gib_local", "cpu_s_per_gib_remote",
		"copies_per_byte", "provider_copies_per_byte", "allocs_per_op"} {
		if _, ok := got[0][field]; !ok {
			t.Errorf("no field %s in %v", field, got[0])
		}
	}
	if got[1]["protocol"] != inline {
		t.Errorf("protocol %v", got[1]["protocol"])
	}
	// Both sides are this process here, so that each counts the other's.
	if copies := find("pack-16x64k", Shm).Copies; copies == nil || *copies < 2 {
		t.Errorf("packing copies %v times", copies)
	}
	if copies := find("gather-16x64k", Shm).Copies; copies == nil || *copies > 0.01 {
		t.Errorf("gathering copies %v times", copies)
	}
}

func TestNetQuickHasTheNamedCases(t *testing.T) {
	n := &Bench{Providers: []string{TCP, Shm}, Quick: true}
	cases := n.Cases()
	if len(cases) > 10 {
		t.Errorf("%d cases", len(cases))
	}
	if _, err := bench.Choose(cases, named()); err != nil {
		t.Error(err)
	}
	if _, err := bench.Choose((&Bench{Providers: n.Providers}).Cases(), FigureCases()); err != nil {
		t.Error(err)
	}
}

// TestSharedCopyHandsOverWholeBuffers clears what it took, so that a buffer that is handed over too
// early, or twice, shows.
func TestSharedCopyHandsOverWholeBuffers(t *testing.T) {
	const size = 256 * bench.KiB
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, copyBuffers+2*size); err != nil {
		t.Fatal(err)
	}
	var sides [2]*shared // two mappings, as two processes have them
	for i := range sides {
		if sides[i], err = mapCopy(fd, size); err != nil {
			t.Fatal(err)
		}
		defer sides[i].close()
	}
	from := plain.Touched(size)
	var wg sync.WaitGroup
	wg.Go(func() { sides[0].produce(from, func() bool { return false }) })
	taken := 0
	m, err := sides[1].consume(t.Context(), 20*time.Millisecond, func(b []byte) {
		if !bytes.Equal(b, from) {
			t.Errorf("buffer %d is not what was copied", taken)
		}
		clear(b)
		taken++
	})
	if err != nil || m.Ops != taken || m.Bytes != int64(taken)*size || taken < 1 {
		t.Errorf("%+v, %v, %d taken", m, err, taken)
	}
	sides[1].stop.Store(1)
	wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sides[1].stop.Store(0)
	sides[1].full[0].Store(0)
	if _, err := sides[1].consume(ctx, time.Hour, func([]byte) {}); err == nil {
		t.Error("goes on although it was given up")
	}
}

func TestSharedCopyThroughThePeer(t *testing.T) {
	n := netHere(t)
	m, err := n.sharedCopies(mib)(t.Context(), 5*time.Millisecond)
	if err != nil || m.Ops < 1 || m.Bytes != int64(m.Ops)*mib {
		t.Fatalf("%+v, %v", m, err)
	}
}

func TestNetPeerRefusesNonsense(t *testing.T) {
	b := netHere(t)
	for _, s := range []struct {
		do   string
		args any
	}{
		{"dance", 1},
		{doServe, serveArgs{Provider: "pigeon"}},
		{doServe, serveArgs{Provider: TCP, Bytes: bytesMax + 1}},
		{doServe, serveArgs{Provider: TCP, Bytes: -1}},
		{doCopy, copyArgs{"/proc/self/fd/none", 4096}},
		{doCopy, copyArgs{"/dev/null", 4096}},
		{doFar, farArgs{Provider: TCP, Shape: shape{Pieces: moveDepth + 1, Piece: 1}}},
		{doFar, farArgs{Provider: TCP}},
	} {
		c, err := partner.Dial(t.Context(), b.Peer.Control)
		if err != nil {
			t.Fatal(err)
		}
		var reply any
		if err := c.Ask(s.do, s.args, &reply); err == nil {
			t.Errorf("%+v: answered %+v", s, reply)
		}
		if err := c.Ask("usage", struct{}{}, &reply); err != nil {
			t.Errorf("%+v: the connection is lost: %v", s, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestLadderOfThePeer(t *testing.T) {
	n := netHere(t)
	addr, err := n.ServeLadder(t.Context(), []string{Shm}, TCP)
	if err != nil {
		t.Fatal(err)
	}
	providers := &peer.Providers{}
	for _, p := range []string{Shm, TCP} {
		d, err := n.Open(p)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Domain.Close()
		providers.Domains = append(providers.Domains, d.Domain)
	}
	network, err := peer.New(providers, msg.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer network.Close()
	conn, err := network.Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	if conn.Provider() != Shm {
		t.Errorf("reached by %s: %+v", conn.Provider(), network.Ladder(conn))
	}
}
