package bench

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/tcp"
)

// serveHere is a peer in this process: enough to see that everything works, not to measure.
func serveHere(t *testing.T) *Fabric {
	t.Helper()
	plain, cpu := listen(t), listen(t)
	go ServePlain(plain)
	go ServeCPU(cpu)
	f := &Fabric{Plain: plain.Addr().String(), CPU: cpu.Addr().String(), Quick: true}
	for _, name := range []string{"tcp", "device"} {
		domain := openHere(t)
		addr := serveDomain(t, openHere(t))
		f.Providers = append(f.Providers, Provider{Name: name, RDMA: name == "device",
			Domain: domain, Addr: addr})
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func openHere(t *testing.T) fabric.Domain {
	t.Helper()
	d, err := tcp.Open(tcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// serveDomain runs ServeFabric until the test ends.
func serveDomain(t *testing.T, d fabric.Domain) string {
	t.Helper()
	ln, err := d.Connector().Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ServeFabric(context.Background(), d, ln, func(err error) { t.Error(err) })
	}()
	t.Cleanup(func() {
		ln.Close()
		d.Close()
		<-done
	})
	return ln.Addr().String()
}

func TestFabricMeasuresEveryCase(t *testing.T) {
	f := serveHere(t)
	cases, err := f.Cases()
	if err != nil {
		t.Fatal(err)
	}
	b := Budget{Rounds: 1, Round: 2 * time.Millisecond, Note: func(text string) { t.Error(text) }}
	rows, err := RunAll(t.Context(), b, cases)
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
		case strings.HasPrefix(r.Case, "gather"), strings.HasPrefix(r.Case, "file"):
			name, _, _ := strings.Cut(r.Provider, ",")
			if !strings.HasPrefix(r.Ceiling, name+", ") {
				t.Errorf("%+v", r)
			}
		case strings.HasPrefix(r.Provider, "device"): // there is no perftest for it
			if r.Ceiling != "" || r.Ratio != 0 {
				t.Errorf("%+v", r)
			}
		case r.Ceiling != PlainTCP || r.Ratio <= 0:
			t.Errorf("%+v", r)
		}
	}
	for _, name := range []string{
		"rtt-8 latency plain Go TCP", "rtt-8 latency tcp", "rtt-8 latency tcp, polling",
		"rtt-64 latency tcp", "rtt-512 latency tcp", "rtt-4k latency tcp", "rtt-64k latency device",
		"write-4k bandwidth tcp", "write-64k bandwidth tcp", "write-64k bandwidth tcp, bulk",
		"write-1m bandwidth device", "write-1m cpu tcp", "write-1m cpu-peer tcp",
		"write-4m bandwidth tcp", "read-4k bandwidth tcp", "read-64k bandwidth tcp",
		"read-1m bandwidth tcp", "read-4m bandwidth tcp", "rate-8 rate tcp",
		"rate-8 rate plain Go TCP", "send-4k bandwidth tcp", "gather-16x4k bandwidth tcp",
		"gather-16x64k bandwidth tcp, contiguous",
	} {
		if !seen[name] {
			t.Errorf("no row %s", name)
		}
	}
	if f.Providers[0].Domain.Caps().FileRange && !seen["file-1m bandwidth tcp"] {
		t.Error("no writes from a file")
	}
}

func TestFabricBulkVariants(t *testing.T) {
	f := serveHere(t)
	f.Quick = false
	c := f.write(4 * kib)
	if !slices.ContainsFunc(c.Others, func(c Contender) bool { return c.Provider == "tcp, bulk" }) {
		t.Error("bulk writes of 4 KiB are measured in quick runs only")
	}
}

// A peer that goes away in the middle ends the measurement with an error, and soon.
func TestFabricPeerDies(t *testing.T) {
	d, there := openHere(t), openHere(t)
	p := &Provider{Name: "tcp", Domain: d, Addr: serveDomain(t, there)}
	c, s := p.transfers(transfer{op: fabric.OpWrite, size: 64 * kib, depth: writeDepth})
	defer c.Close()
	if _, err := s(t.Context(), time.Millisecond); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, func() { there.Close() })
	if _, err := s(t.Context(), time.Hour); errs.KindOf(err) != errs.Disconnected {
		t.Errorf("got %v", err)
	}
}

func TestPeerRefusesUnknownRoles(t *testing.T) {
	d := openHere(t)
	addr := serveDomain(t, openHere(t))
	cq, err := d.NewCQ(fabric.CQOptions{Depth: 8})
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Connector().Dial(t.Context(), addr, fabric.EndpointConfig{SendCQ: cq, RecvCQ: cq,
		SendDepth: 4, RecvDepth: 4, Hello: fabric.Hello{Features: 0xffff}})
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
	r := role{mode: modeSink, spin: true, size: 4 * mib}
	if got, err := roleOf(r.features()); err != nil || got != r {
		t.Errorf("%+v, %v", got, err)
	}
}
