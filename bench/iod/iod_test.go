package iod

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/benchtest"
	"github.com/sluice-storage/sluice/bench/net"
	"github.com/sluice-storage/sluice/bench/partner"
	"github.com/sluice-storage/sluice/bench/store"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/iod/server"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/memstore"
	"github.com/sluice-storage/sluice/unifier"
)

// benchHere is bench iod with servers in this process, on stores in memory.
func benchHere(t *testing.T) *Bench {
	t.Helper()
	var names atomic.Uint64
	open, dir := benchtest.Opener(t), t.TempDir()
	info := benchtest.Serve(t, func(err error) { t.Error("peer:", err) }, net.Jobs(open),
		Jobs(func(s Spec) (*Site, error) {
			return startHere(open, filepath.Join(dir, fmt.Sprint(names.Add(1))), s)
		}))
	providers := []string{net.TCP, net.Shm}
	b := &Bench{Providers: providers, Bytes: 32 * mib, Shrink: 8,
		Net:    &net.Bench{Providers: providers, Open: open, Peer: info},
		Limits: map[string]msg.Limits{net.Shm: {EagerMax: -1}},
		Store: &store.Bench{Bytes: 16 * mib, LogBytes: mib,
			Open: func(store.Kind) (stripe.Engine, error) {
				return memstore.New(memstore.Options{})
			}}}
	t.Cleanup(func() {
		if err := errors.Join(b.Close(), b.Net.Close(), b.Store.Close()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// startHere is a server on both providers.
func startHere(open partner.Opener, path string, s Spec) (*Site, error) {
	var undo []func() error
	site := &Site{Addrs: map[string]string{}, Close: func() error {
		var failed []error
		for _, fn := range slices.Backward(undo) {
			failed = append(failed, fn())
		}
		return errors.Join(failed...)
	}}
	providers := &peer.Providers{}
	var places []string
	for _, name := range []string{net.TCP, net.Shm} {
		d, err := open(name)
		if err != nil {
			return nil, errors.Join(err, site.Close())
		}
		undo = append(undo, d.Domain.Close)
		providers.Domains = append([]fabric.Domain{d.Domain}, providers.Domains...)
		places = append(places, name+":"+d.Listen)
	}
	network, err := peer.New(providers, msg.Options{})
	if err != nil {
		return nil, errors.Join(err, site.Close())
	}
	undo = append(undo, network.Close)
	h, end, err := handlerHere(network.Node, path, s, site)
	if err != nil {
		return nil, errors.Join(err, site.Close())
	}
	undo = append(undo, end)
	srv, err := network.Serve(strings.Join(places, ","), h, msg.ServeOptions{})
	if err != nil {
		return nil, errors.Join(err, site.Close())
	}
	undo = append(undo, func() error { return srv.Close(context.Background()) })
	for _, p := range srv.Places() {
		site.Addrs[p.Domain.Caps().Provider] = p.Addr
	}
	return site, nil
}

func handlerHere(node *msg.Node, path string, s Spec, site *Site) (msg.Handler,
	func() error, error) {
	if s.Kind != Unifier {
		h, err := NewNaive(node, s.Kind, path, s.Bytes)
		if err != nil {
			return nil, nil, err
		}
		return h, h.Close, nil
	}
	data, err := memstore.New(memstore.Options{MaxBytes: 1 << 30})
	if err != nil {
		return nil, nil, err
	}
	cache, err := unifier.New(unifier.Config{MemoryBytes: s.Cache, Registrar: node}, data)
	if err != nil {
		return nil, nil, err
	}
	h, err := server.New(server.Config{ID: 1, Key: site.Key, Store: data, Cache: cache})
	if err != nil {
		return nil, nil, errors.Join(err, cache.Close())
	}
	site.Counts = h.Counts
	return h, func() error {
		h.Close()
		return errors.Join(cache.Close(), data.Close())
	}, nil
}

// TestIodMeasures runs one case of each kind.
func TestIodMeasures(t *testing.T) {
	b := benchHere(t)
	cases, err := bench.Choose(b.Cases(), []string{"cached-(read|write)-1m", "cached-read-4k-d32",
		"durable-.*", "cold-.*", "cache-x2.0", "members-net-4-d1", "rand-read-4k-d4", "list-16",
		"states-read-4k"})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := bench.RunAll(t.Context(), bench.Budget{Rounds: 1, Round: 5 * time.Millisecond}, cases)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range rows {
		seen[r.Case+"/"+r.Provider+"/"+r.Metric] = true
		if r.Value <= 0 && r.Metric != bench.CacheHits && r.Metric != bench.Copied &&
			r.Metric != bench.Amplification && !strings.HasPrefix(r.Metric, bench.StateTime) {
			t.Errorf("%s by %s: %s is %v", r.Case, r.Provider, r.Metric, r.Value)
		}
	}
	for _, p := range b.Providers {
		for _, want := range []string{"cached-read-1m/" + p + ", unifier/bandwidth",
			"cached-read-1m/" + p + ", unifier, no CRC/bandwidth",
			"cached-read-1m/" + p + ", normal/bandwidth", "cached-write-1m/" + p + ", mmap/bandwidth",
			"cached-read-1m/" + p + ", network alone/bandwidth", "cache-x2.0/" + p + "/hits",
			"cold-read-1m/" + p + ", direct/bandwidth", "cold-read-1m/store alone/bandwidth",
			"members-net-4-d1/" + p + ", multiple/bandwidth", "list-16/" + p + ", list/bandwidth",
			"states-read-4k/" + p + ", cached/state-send",
			"durable-write-4k-d16/" + p + "/rate"} {
			if !seen[want] {
				t.Errorf("no %s", want)
			}
		}
	}
	var text strings.Builder
	if err := bench.WriteFigures(&text, bench.Judge(Promises(), rows)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"tcp: cached 1 MiB reads, depth 4, against bulk-1m",
		"shm: cached 1 MiB reads, against normal", "shm: cached 4 KiB reads, depth 32",
		"tcp: direct 1 MiB reads, depth 4", "shm: durable 4 KiB writes", "copies per byte"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	for _, s := range b.sites {
		if s.uses == 0 && s.control != nil {
			t.Errorf("%+v is open, and nobody needs it", s.spec)
		}
	}
}

func TestIodFigures(t *testing.T) {
	cheap, dear := 0.1, 0.4
	cost := func(v *float64) bench.Cost { return bench.Cost{LocalCPU: v, RemoteCPU: v} }
	row := func(name, who string, value, ratio float64) bench.Row {
		return bench.Row{Case: name, Provider: who, Metric: metricOf(mib), Value: value, Ratio: ratio}
	}
	mine := row("cached-read-1m", "tcp, unifier", 2000, 0.95)
	theirs := row("cached-read-1m", "tcp, normal", 1900, 0.9)
	mine.Cost, theirs.Cost = cost(&cheap), cost(&dear)
	got := map[string]bench.Figure{}
	for _, f := range bench.Judge(Promises(), []bench.Row{mine, theirs,
		row("cached-read-1m", "tcp, unifier, same data", 3000, 0.85),
		row("cold-read-1m", "store alone", 1500, 1), row("cold-read-1m", "tcp, network alone", 3000, 1),
		row("cold-read-1m", "tcp, direct", 1400, 0.93),
		row("members-net-4-d1", "shm, multiple", 870, 1.4),
		row("members-net-4-d1", "shm, plain", 600, 1), row("members-net-4-d4", "shm, plain", 1000, 1),
		row("durable-write-4k-d16", "shm", 30000, 0.81)}) {
		got[f.Name] = f
	}
	for name, met := range map[string]bool{
		"tcp: cached 1 MiB reads, depth 4, against bulk-1m":                          false,
		"tcp: the same within 64 MiB, against a network that walks as far":           true,
		"tcp: direct 1 MiB reads, depth 4, against the slower of store and network":  true,
		"shm: 4 throttled members, depth 1, multiple streams, against depth 4 plain": true,
		"shm: 4 throttled members, depth 1, multiple streams, against depth 1 plain": true,
		"shm: durable 4 KiB writes, 16 outstanding, against the store":               true,
		"tcp: cached 1 MiB reads, against normal (bandwidth 1.05 x, per processor " +
			"second 4.00 x)": true,
	} {
		f, ok := got[name]
		if !ok || f.Met != met {
			t.Errorf("%s: %v, %+v", name, ok, f)
		}
	}
}

// When the chunks of a request arrive is told for each of them, by every kind of streams.
func TestArrivals(t *testing.T) {
	b := benchHere(t)
	chosen, err := bench.Choose(b.Cases(), []string{"arrivals-1m"})
	if err != nil || len(chosen) != 1 || len(chosen[0].Contenders) != 3 {
		t.Fatal(chosen, err)
	}
	rows, err := bench.RunAll(t.Context(), bench.Budget{Rounds: 1, Round: time.Millisecond, All: true,
		Note: func(text string) { t.Error(text) }}, chosen)
	if err != nil {
		t.Fatal(err)
	}
	for _, way := range []string{"plain", "single", "multiple"} {
		by := net.Shm + ", " + way
		for i := range mib / chunkBytes {
			r := bench.Rows(rows).Find("arrivals-1m", by, fmt.Sprint(bench.Arrival, i))
			if r == nil || r.Value <= 0 || r.Unit != "us" {
				t.Fatalf("chunk %d by %s: %+v", i, by, r)
			}
		}
		if all := bench.Rows(rows).Find("arrivals-1m", by, ""); all == nil || all.Value <= 0 {
			t.Errorf("%s: %+v", by, all)
		}
	}
}
