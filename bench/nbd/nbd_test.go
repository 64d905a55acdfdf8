package nbd

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/errs"
)

// TestMain makes the test binary the null server or the loop when it is called as one, as the
// program is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == AideCommand {
		if err := ServeAide(context.Background(), os.Stdout, os.Args[2:]); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

func needFio(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("fio"); err != nil {
		t.Skip("needs fio: make deps")
	}
}

func self(t *testing.T) string {
	t.Helper()
	name, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// shortDir is a folder whose name leaves room for that of a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func tiny(t *testing.T, notes *[]string) Options {
	return Options{Dir: shortDir(t), Self: self(t), Bytes: 8 << 20, Rounds: 1,
		Time: 20 * time.Millisecond, Note: func(text string) { *notes = append(*notes, text) }}
}

// TestRun measures null servers as if they were ours and the ceiling: starting, filling, fio, the
// rows and what is left out are real.
func TestRun(t *testing.T) {
	needFio(t)
	ours := startNull(self(t))
	ours.Name, ours.Kind = Sluice, Ours
	absent := Starter{Name: Nbdkit, Kind: Peer, Programs: []string{"no-such-program"},
		Packages: []string{"nothing"}}
	unknown := Starter{Name: "direct", Start: func(context.Context, Place) (*Server, error) {
		return nil, errs.New(errs.Unsupported, "test", "", nil)
	}}
	scene := &Scene{Name: SceneDisk, Starters: []Starter{ours, absent, unknown, startNull(self(t))},
		Usual: []string{"read-1m-d4", "randwrite-4k-d16-c4", "randwrite-4k-d16-flush", besideName}}
	var notes []string
	opts := tiny(t, &notes)
	rows, err := Run(t.Context(), opts, []*Scene{scene})
	if err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(notes, "\n"))
	}
	find := bench.Rows(rows).Find
	for _, want := range []struct{ name, who, metric string }{
		{"disk-read-1m-d4", Sluice, bench.Bandwidth}, {"disk-read-1m-d4", Null, bench.Bandwidth},
		{"disk-read-1m-d4", Sluice, bench.ReaderCPU}, {"disk-read-1m-d4", Sluice, bench.Memory},
		{"disk-randwrite-4k-d16-c4", Sluice, bench.Rate}, {"disk-beside", Sluice, bench.SlowDown},
		{"disk-randwrite-4k-d16-flush", Sluice, bench.Rate}} {
		r := find(want.name, want.who, want.metric)
		if r == nil || r.Low > r.Value || r.High < r.Value ||
			r.Value <= 0 && r.Metric != bench.ReaderCPU {
			t.Errorf("%v: %+v", want, r)
		}
	}
	if r := find("disk-randwrite-4k-d16-c4", Sluice, ""); r == nil || r.Conns != 4 || r.Depth != 16 ||
		r.Size != 4096 || r.Ceiling != Null || r.Ratio <= 0 {
		t.Errorf("%+v", r)
	}
	if find("disk-randwrite-4k-d16-flush", Null, "") != nil {
		t.Error("the null server has flushed")
	}
	all := strings.Join(notes, "\n")
	for _, want := range []string{"nbdkit is left out: there is no no-such-program here; install " +
		"the package nothing", "direct is left out", "round 1 of 1, 4 of 4: disk-beside, sluice: "} {
		if !strings.Contains(all, want) {
			t.Errorf("nobody said %q:\n%s", want, all)
		}
	}
	if left, err := os.ReadDir(opts.Dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestBroken sees that a server that dies is left out while the others go on, and that only our own
// failure is one of the bench.
func TestBroken(t *testing.T) {
	needFio(t)
	for _, kind := range []Kind{Peer, Ours} {
		mortal := startNull(self(t))
		start := mortal.Start
		mortal.Name, mortal.Kind = "mortal", kind
		mortal.Start = func(ctx context.Context, at Place) (*Server, error) {
			s, err := start(ctx, at)
			if err == nil {
				s.URI += "-gone" // after it was filled
			}
			return s, err
		}
		var notes []string
		s := &play{Bench: &Bench{opts: tiny(t, &notes)}, scene: &Scene{Name: SceneDisk},
			values: map[string][]measured{}}
		at := Place{Dir: shortDir(t), Bytes: 8 << 20}
		srv, err := mortal.Start(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		s.running = []*contender{{Server: srv, name: mortal.Name, kind: kind}}
		s.columns = []workload{{size: 4096, depth: 1, conns: 1}}
		if err := s.round(t.Context(), 0); err != nil || !s.running[0].gone {
			t.Errorf("%v, %+v", err, s.running[0])
		}
		if failed := len(s.failed) > 0; failed != (kind == Ours) {
			t.Errorf("kind %d: %v", kind, s.failed)
		}
	}
}

// TestPeers starts every peer that is installed, writes and reads.
func TestPeers(t *testing.T) {
	needFio(t)
	for _, s := range []Starter{startQemu(false), startQemu(true), startNbdkit(), startMemory(),
		startNbdServer()} {
		if why := s.missing(); why != "" {
			t.Log(why)
			continue
		}
		at, err := makePlace(shortDir(t), &s, 4<<20)
		if err != nil {
			t.Fatal(err)
		}
		srv, err := s.Start(t.Context(), at)
		if err != nil {
			t.Errorf("%s: %v", s.Name, err)
			continue
		}
		w := workload{size: 64 << 10, depth: 4, conns: 2}
		err = fill(t.Context(), srv.URI, at.Bytes)
		if err == nil {
			_, err = w.run(t.Context(), srv.URI, at.Bytes, 10*time.Millisecond)
		}
		if err := errors.Join(err, srv.Close()); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		if answers(Socket(at)) {
			t.Errorf("%s is still there", s.Name)
		}
	}
}

func TestDeviceNeedsAServer(t *testing.T) {
	needFio(t)
	w := workload{size: 4096, depth: 1, conns: 1}
	uri := socketURI(filepath.Join(t.TempDir(), "absent"))
	if l, err := w.run(t.Context(), uri, 1<<20, 10*time.Millisecond); err == nil {
		t.Errorf("measured %+v without a server", l)
	}
}

func TestParseReport(t *testing.T) {
	const text = `note: hello
{"jobs":[{"error":0,"usr_cpu":10,"sys_cpu":40,"job_runtime":2000,"read":{"io_bytes":100,
"bw_bytes":50,"iops":5},"write":{}},{"error":0,"usr_cpu":0,"sys_cpu":0,"job_runtime":1,"read":{},
"write":{"io_bytes":1,"bw_bytes":2,"iops":3}}]}`
	got, err := parseReport([]byte(text))
	want := load{bytes: 101, bandwidth: 52, iops: 8, client: time.Second}
	if err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{"", "{}", `{"jobs":[]}`, `{"jobs":[{"error":5}]}`,
		`{"jobs":[{"error":0}]}`} {
		if l, err := parseReport([]byte(bad)); err == nil {
			t.Errorf("%q is %+v", bad, l)
		}
	}
}

// TestMatrix: every name is one of its own, and the usual columns are there.
func TestMatrix(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range matrix() {
		if seen[w.name()] {
			t.Errorf("%s twice", w.name())
		}
		seen[w.name()] = true
	}
	for _, s := range Scenes("self", nil) {
		usual := slices.DeleteFunc(List([]*Scene{s}), func(c bench.Case) bool { return !c.First })
		if len(usual) != len(s.Usual) {
			t.Errorf("%s: %d of %d usual columns", s.Name, len(usual), len(s.Usual))
		}
	}
	for _, name := range []string{"read-4m-d32-c4", "randwrite-4k-d1", "randwrite-4k-d32-c4-flush"} {
		if !seen[name] {
			t.Errorf("there is no %s", name)
		}
	}
}
