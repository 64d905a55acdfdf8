package trace_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/hook/hooktest"
	"github.com/sluice-storage/sluice/fabric/hook/trace"
	"github.com/sluice-storage/sluice/fabric/sim"
)

var update = flag.Bool("update", false, "write the golden files anew")

// ticks is a clock that moves by a microsecond at each look.
func ticks() func() time.Duration {
	var mu sync.Mutex
	var now time.Duration
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		now += time.Microsecond
		return now
	}
}

// scene is a short life of a connection, seen from a.
func scene(t *testing.T, opts trace.Options) *trace.Domain {
	d, _ := play(t, opts)
	return d
}

// play is scene, and tells what in its dumps is the provider's choice.
func play(t *testing.T, opts trace.Options) (*trace.Domain, *strings.Replacer) {
	net := sim.New(sim.Options{Seed: 5})
	d, err := trace.New(net.Open(), opts)
	hooktest.Check(t, err)
	a, b := hooktest.Pair(t, d, net.Open(), "b")
	rem := b.Grant(0, 100)
	own := a.Grant(0, 64)
	a.Recv(1, 16)
	b.Recv(1, 16)
	silent := a.Move(fabric.OpWrite, 7, rem)
	silent.Flags = fabric.FlagInline
	silent.Local[0].Buf, silent.Remote = silent.Local[0].Buf[:10], rem.Slice(0, 10)
	a.Post(silent, a.Move(fabric.OpRead, 8, rem), a.Send(9, 12))
	a.Next(2)
	b.Next(1)
	bad := a.Move(fabric.OpWrite, 10, rem)
	bad.Remote.Key++
	a.Post(bad)
	a.Next(1)
	wrong := a.Send(11, 1)
	wrong.Op = 77
	_ = a.EP.Post([]fabric.WR{wrong})
	a.Reg.Revoke(own)
	hooktest.Check(t, b.EP.Close())
	a.Next(1)
	hooktest.Check(t, a.EP.Close())
	name, _ := json.Marshal(a.EP.Name())
	return d, strings.NewReplacer(fmt.Sprintf("%#x", own.Key), "KEY", a.EP.Name(), "NAME",
		strings.Trim(string(name), `"`), "NAME")
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		hooktest.Check(t, os.MkdirAll("testdata", 0o755))
		hooktest.Check(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	hooktest.Check(t, err)
	if got != string(want) {
		t.Errorf("%s differs; got:\n%s\nwant:\n%s", path, got, want)
	}
}

func TestDump(t *testing.T) {
	d, choices := play(t, trace.Options{Clock: ticks()})
	var text, chrome bytes.Buffer
	hooktest.Check(t, d.Dump(&text))
	hooktest.Check(t, d.DumpChrome(&chrome))
	golden(t, "scene.txt", choices.Replace(text.String()))
	golden(t, "scene.json", choices.Replace(chrome.String()))
}

// What DumpChrome writes is JSON in which every bar that ends has begun before, once.
func TestChromePairs(t *testing.T) {
	d := scene(t, trace.Options{})
	var out bytes.Buffer
	hooktest.Check(t, d.DumpChrome(&out))
	var parsed struct {
		TraceEvents []struct {
			Name, Ph, ID string
			Ts           float64
		}
	}
	hooktest.Check(t, json.Unmarshal(out.Bytes(), &parsed))
	begun := map[string]string{}
	at := map[string]float64{}
	ends := 0
	for _, ev := range parsed.TraceEvents {
		switch ev.Ph {
		case "b":
			if begun[ev.ID] != "" {
				t.Errorf("bar %s begins twice", ev.ID)
			}
			begun[ev.ID], at[ev.ID] = ev.Name, ev.Ts
		case "e":
			if begun[ev.ID] != ev.Name || ev.Ts < at[ev.ID] {
				t.Errorf("bar %s of %q ends as %q", ev.ID, begun[ev.ID], ev.Name)
			}
			delete(begun, ev.ID)
			ends++
		}
	}
	if len(begun) != 0 || ends != 5 {
		t.Errorf("%d bars ended, left open: %v", ends, begun)
	}
}

// The ring holds the last events and no more, and says what is lost.
func TestBounded(t *testing.T) {
	net := sim.New(sim.Options{})
	d, err := trace.New(net.Open(), trace.Options{Events: 10})
	hooktest.Check(t, err)
	a, b := hooktest.Pair(t, d, net.Open(), "b")
	rem := b.Grant(0, 8)
	for i := range uint64(100) {
		a.Post(a.Move(fabric.OpWrite, i, rem))
		a.Next(1)
	}
	events, lost := d.Events()
	if len(events) != 10 || lost != 192 { // register, dial, and two for each of a hundred
		t.Fatalf("%d events, %d lost", len(events), lost)
	}
	for i, ev := range events {
		want := trace.Event{Kind: []trace.Kind{trace.Post, trace.Complete}[i%2]}
		if ev.Kind != want.Kind || ev.Context != uint64(95+i/2) || ev.Name != a.EP.Name() {
			t.Errorf("event %d is %+v", i, ev)
		}
		if i > 0 && ev.At < events[i-1].At {
			t.Errorf("event %d is older than the one before", i)
		}
	}
	var out bytes.Buffer
	hooktest.Check(t, d.Dump(&out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 11 || lines[0] != "192 earlier events lost" {
		t.Errorf("%d lines, the first: %s", len(lines), lines[0])
	}
	hooktest.Check(t, d.DumpChrome(&bytes.Buffer{}))
}

// A death is told once, with what told of it first.
func TestDeath(t *testing.T) {
	d := scene(t, trace.Options{})
	events, _ := d.Events()
	count := map[trace.Kind]int{}
	for _, ev := range events {
		count[ev.Kind]++
		if ev.Kind == trace.Death && ev.Err != errs.Disconnected {
			t.Errorf("died of %v", ev.Err)
		}
	}
	if count[trace.Death] != 1 || count[trace.Close] != 1 || count[trace.Dial] != 1 {
		t.Errorf("events %v", count)
	}
}

func TestLog(t *testing.T) {
	for level, want := range map[slog.Level]bool{slog.LevelDebug: true, slog.LevelInfo: false} {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level}))
		scene(t, trace.Options{Log: log})
		for _, part := range []string{`msg="fabric post"`, "op=writeimm", "err=disconnected"} {
			has := strings.Contains(out.String(), part)
			if part != "op=writeimm" && has != want || part == "op=writeimm" && has {
				t.Errorf("level %v: %q is in the log: %v", level, part, has)
			}
		}
	}
}

func TestOptions(t *testing.T) {
	if _, err := trace.New(sim.New(sim.Options{}).Open(), trace.Options{Events: -1}); err == nil {
		t.Error("a ring of negative size")
	}
	if got := fmt.Sprint(trace.Grant, trace.Kind(0), trace.Kind(99)); got != "grant unknown unknown" {
		t.Error(got)
	}
}

// broken is a writer that fails.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errs.NoSpace }

func TestDumpFails(t *testing.T) {
	d := scene(t, trace.Options{})
	for _, err := range []error{d.Dump(broken{}), d.DumpChrome(broken{})} {
		if errs.KindOf(err) != errs.NoSpace {
			t.Errorf("got %v", err)
		}
	}
}
