package fabric

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/benchtest"
	"github.com/sluice-storage/sluice/bench/partner"
	"github.com/sluice-storage/sluice/bench/plain"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// benchHere has tcp, and tcp under the name of a device, which has no perftest here.
func benchHere(t *testing.T) *Bench {
	t.Helper()
	tcp := benchtest.Opener(t)
	open := func(string) (partner.Domain, error) { return tcp("tcp") }
	b := &Bench{Providers: []string{"tcp", Verbs}, Open: open, Quick: true, Note: func(string) {},
		Peer: benchtest.Serve(t, func(err error) { t.Error(err) }, Jobs(open))}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := b.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.perftest = nil // it is installed on some hosts, and finds no device behind that name
	return b
}

func TestFabricMeasuresEveryCase(t *testing.T) {
	f := benchHere(t)
	cases, err := f.Cases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b := bench.Budget{Rounds: 1, Round: 2 * time.Millisecond,
		Note: func(text string) { t.Error(text) }}
	rows, err := bench.RunAll(t.Context(), b, cases)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range rows {
		seen[r.Case+" "+r.Metric+" "+r.Provider] = true
		if r.Bench != "fabric" || r.Value <= 0 || r.Low > r.Value || r.High < r.Value ||
			r.Size < 8 || r.Depth < 1 {
			t.Errorf("%+v", r)
		}
		switch {
		case strings.HasPrefix(r.Case, "gather"):
			name, _, _ := strings.Cut(r.Provider, ",")
			if !strings.HasPrefix(r.Ceiling, name+", ") {
				t.Errorf("%+v", r)
			}
		case strings.HasPrefix(r.Provider, "verbs"): // there is no perftest for it
			if r.Ceiling != "" || r.Ratio != 0 {
				t.Errorf("%+v", r)
			}
		case r.Ceiling != plain.TCP || r.Ratio <= 0:
			t.Errorf("%+v", r)
		}
	}
	for _, name := range []string{
		"rtt-8 latency plain Go TCP", "rtt-8 latency tcp", "rtt-8 latency tcp, polling",
		"rtt-64 latency tcp", "rtt-512 latency tcp", "rtt-4k latency tcp", "rtt-64k latency verbs",
		"write-4k bandwidth tcp", "write-64k bandwidth tcp", "write-64k bandwidth tcp, bulk",
		"write-1m bandwidth verbs", "write-1m cpu tcp", "write-1m cpu-peer tcp",
		"write-4m bandwidth tcp", "read-4k bandwidth tcp", "read-64k bandwidth tcp",
		"read-1m bandwidth tcp", "read-4m bandwidth tcp", "rate-8 rate tcp",
		"rate-8 rate plain Go TCP", "send-4k bandwidth tcp", "gather-16x4k bandwidth tcp",
		"gather-16x64k bandwidth tcp, contiguous",
	} {
		if !seen[name] {
			t.Errorf("no row %s", name)
		}
	}
}

func TestFabricBulkVariants(t *testing.T) {
	b := benchHere(t)
	b.Quick = false
	cases, err := b.Cases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	chosen, err := bench.Choose(cases, []string{"write-4k"})
	if err != nil || !slices.ContainsFunc(chosen[0].Contenders, func(c bench.Contender) bool {
		return c.Provider == "tcp, bulk"
	}) {
		t.Errorf("bulk writes of 4 KiB are measured in quick runs only (%v)", err)
	}
}

// A peer that goes away in the middle ends the measurement with an error, and soon.
func TestFabricPeerDies(t *testing.T) {
	b := benchHere(t)
	p := &Provider{Name: "tcp", Open: b.Open, Control: b.Peer.Control}
	c := transfer{op: fabric.OpWrite, depth: writeDepth}.of(p, 64*bench.KiB)
	defer p.Close()
	defer c.Close()
	if _, err := c.Measure(t.Context(), time.Millisecond); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, func() { p.conn.Close() })
	if _, err := c.Measure(t.Context(), time.Hour); errs.KindOf(err) != errs.Disconnected {
		t.Errorf("got %v", err)
	}
}

func TestPeerRefusesUnknownRoles(t *testing.T) {
	b := benchHere(t)
	p := &Provider{Name: "tcp", Open: b.Open, Control: b.Peer.Control}
	defer p.Close()
	if err := p.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	cq, err := p.domain.Domain.NewCQ(fabric.CQOptions{Depth: 8})
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.domain.Domain.Connector().Dial(t.Context(), p.addr, fabric.EndpointConfig{
		SendCQ: cq, RecvCQ: cq, SendDepth: 4, RecvDepth: 4, Hello: fabric.Hello{Features: 0xffff}})
	if err == nil {
		t.Error("a peer served a role that there is not")
	}
}

func TestRolesSurviveTheHello(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		features := rapid.Uint16().Draw(t, "features")
		r, err := roleOf(features)
		if err != nil {
			return
		}
		if r.features() != features || r.size < 1 || r.size > sizeMax || r.slots() < 1 {
			t.Fatalf("%#x is %+v is %#x", features, r, r.features())
		}
	})
	r := role{mode: modeSink, spin: true, size: 4 * bench.MiB}
	if got, err := roleOf(r.features()); err != nil || got != r {
		t.Errorf("%+v, %v", got, err)
	}
}
