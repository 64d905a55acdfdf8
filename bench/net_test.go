package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric/shm"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
)

// providersHere opens the providers of this process.
func providersHere(t *testing.T) func(provider string) (NetDomain, error) {
	var names atomic.Uint64
	return func(provider string) (d NetDomain, err error) {
		switch provider {
		case tcpProvider:
			d.Listen = "127.0.0.1:0"
			d.Domain, err = tcp.Open(tcp.Options{})
		case shmProvider:
			arenas := shm.NewArenas()
			d.Source = arenas
			d.Listen = fmt.Sprintf("unix:@%s-%p-%d", t.Name(), t, names.Add(1))
			d.Domain, err = shm.Open(shm.Options{Arenas: arenas})
		default:
			err = errs.Newf(errs.Invalid, "test", provider, "no such provider")
		}
		return d, err
	}
}

// netHere is bench net with a peer in this process: enough to see that everything works, not to
// measure.
func netHere(t *testing.T) *Net {
	t.Helper()
	open := providersHere(t)
	control, plain := listen(t), listen(t)
	local, err := net.Listen("unix", fmt.Sprintf("@%s-%p", t.Name(), t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { local.Close() })
	go ServeNet(t.Context(), control, open, func(err error) { t.Log("peer:", err) })
	go ServePlain(plain)
	go ServePlain(local)
	n := &Net{
		Providers: []string{tcpProvider, shmProvider}, Open: open,
		Control: control.Addr().String(), Plain: plain.Addr().String(), Unix: local.Addr().String(),
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// named are the cases that others rely on.
func named() []string {
	return []string{"rtt-8", "rtt-8-spin", "rate-4k-d32", "bulk-1m", "contig-16x64k",
		"gather-16x64k", "pack-16x64k"}
}

// TestNetMeasures runs every named case, and some of each sweep.
func TestNetMeasures(t *testing.T) {
	n := netHere(t)
	cases, err := Choose(n.Cases(), append(named(), "bulk-1m-out", "layers-8.*", "in-(8|4k|1m)",
		"in-4k-d32", "out-(8|32k|1m)", "out-(512|256k)-d32", "progress-8.*", "progress-1m",
		"reg-(in|out)-64k", "service-(0|20)us-w2", "cross-16x(512|64k)"))
	if err != nil {
		t.Fatal(err)
	}
	b := Budget{Rounds: 1, Round: time.Millisecond, Note: func(text string) { t.Error(text) }}
	rows, err := RunAll(t.Context(), b, cases)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range named() {
		for _, p := range n.Providers {
			if !slices.ContainsFunc(rows, func(r Row) bool {
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
	if all := Figures(rows); len(all) < 13 {
		t.Errorf("%d figures: %+v", len(all), all)
	}
}

// checkCosts looks at what rows say besides their value.
func checkCosts(t *testing.T, rows []Row) {
	t.Helper()
	find := func(name, provider string) Row {
		i := slices.IndexFunc(rows, func(r Row) bool {
			return r.Case == name && r.Provider == provider
		})
		if i < 0 {
			t.Fatalf("no row of %s by %s", name, provider)
		}
		return rows[i]
	}
	var b bytes.Buffer
	some := []Row{find("bulk-1m", shmProvider), find("out-32k", "shm, eager")}
	if err := WriteJSON(&b, some); err != nil {
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
	if got[1]["protocol"] != Eager {
		t.Errorf("protocol %v", got[1]["protocol"])
	}
	// Both sides are this process here, so that each counts the other's.
	if copies := find("pack-16x64k", shmProvider).Copies; copies == nil || *copies < 2 {
		t.Errorf("packing copies %v times", copies)
	}
	if copies := find("gather-16x64k", shmProvider).Copies; copies == nil || *copies > 0.01 {
		t.Errorf("gathering copies %v times", copies)
	}
}

func TestNetQuickHasTheNamedCases(t *testing.T) {
	n := &Net{Providers: []string{tcpProvider, shmProvider}, Quick: true}
	cases := n.Cases()
	if len(cases) > 10 {
		t.Errorf("%d cases", len(cases))
	}
	if _, err := Choose(cases, named()); err != nil {
		t.Error(err)
	}
	if _, err := Choose((&Net{Providers: n.Providers}).Cases(), FigureCases()); err != nil {
		t.Error(err)
	}
}

func TestChoose(t *testing.T) {
	cases := []Case{{Name: "a-1"}, {Name: "a-2", Others: []Contender{{Case: "b-2"}}}, {Name: "c"}}
	for _, c := range []struct {
		patterns []string
		want     string
		kind     errs.Kind
	}{
		{nil, "a-1 a-2 c", errs.OK},
		{[]string{"a-.*"}, "a-1 a-2", errs.OK},
		{[]string{"c", "b-2"}, "a-2 c", errs.OK},
		{[]string{"a"}, "", errs.NotFound},
		{[]string{"a-1", "("}, "", errs.Invalid},
	} {
		got, err := Choose(cases, c.patterns)
		var names []string
		for i := range got {
			names = append(names, got[i].Name)
		}
		if strings.Join(names, " ") != c.want || errs.KindOf(err) != c.kind {
			t.Errorf("%v: %v, %v", c.patterns, names, err)
		}
	}
	var b bytes.Buffer
	if err := WriteCases(&b, cases); err != nil || !strings.Contains(b.String(), "a-2, b-2") {
		t.Errorf("%q, %v", b.String(), err)
	}
}

// TestSharedCopyHandsOverWholeBuffers clears what it took, so that a buffer that is handed over too
// early, or twice, shows.
func TestSharedCopyHandsOverWholeBuffers(t *testing.T) {
	const size = 256 * kib
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
	from := touched(size)
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
	if err != nil || m.ops != taken || m.bytes != int64(taken)*size || taken < 1 {
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
	if err != nil || m.ops < 1 || m.bytes != int64(m.ops)*mib {
		t.Fatalf("%+v, %v", m, err)
	}
}

func TestNetPeerRefusesNonsense(t *testing.T) {
	n := netHere(t)
	for _, s := range []spec{
		{Do: "dance"},
		{Do: doServe, Provider: "pigeon"},
		{Do: doServe, Provider: tcpProvider, Bytes: netBytesMax + 1},
		{Do: doServe, Provider: tcpProvider, Bytes: -1},
		{Do: doCopy, Path: "/proc/self/fd/none", Bytes: 4096},
		{Do: doCopy, Path: "/dev/null", Bytes: 4096},
		{Do: doFar, Provider: tcpProvider, Shape: shape{Pieces: moveDepth + 1, Piece: 1}},
		{Do: doFar, Provider: tcpProvider},
	} {
		c, err := dialControl(t.Context(), n.Control)
		if err != nil {
			t.Fatal(err)
		}
		if a, err := c.ask(s); err == nil {
			t.Errorf("%+v: answered %+v", s, a)
		}
		if _, err := c.ask(spec{Do: doStats}); err != nil {
			t.Errorf("%+v: the connection is lost: %v", s, err)
		}
		if err := c.close(); err != nil {
			t.Error(err)
		}
	}
}

func TestWorkIsProportional(t *testing.T) {
	speed := workSpeed()
	if speed <= 0 {
		t.Fatal("no speed")
	}
	if work(speed, 0) == work(speed, time.Microsecond) {
		t.Error("work is not done")
	}
}

func TestLadderOfThePeer(t *testing.T) {
	n := netHere(t)
	addr, err := n.ServeLadder(t.Context(), []string{shmProvider}, tcpProvider)
	if err != nil {
		t.Fatal(err)
	}
	providers := &peer.Providers{}
	for _, p := range []string{shmProvider, tcpProvider} {
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
	if conn.Provider() != shmProvider {
		t.Errorf("reached by %s: %+v", conn.Provider(), network.Ladder(conn))
	}
}
