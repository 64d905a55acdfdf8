package admin

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/internal/supervise"
)

func sample(now time.Time) *Report {
	return &Report{
		Cluster: "00ff", Dir: "/c", URL: "sluice://127.0.0.1:9400", Mount: "/m", Running: true, PID: 7,
		Since: now.Add(-90 * time.Second), Admin: map[string]string{"meta": "127.0.0.1:77"},
		Volumes: 2, Space: Space{Total: 1 << 40, Free: 1 << 39},
		Meta: &Meta{Sessions: 3, Handles: 5, Queued: 1,
			Ops: []OpUse{{Op: "lookup", Calls: 2}, {Op: "create", Calls: 9}}},
		Processes: []supervise.Process{
			{Name: "meta", PID: 8, Status: supervise.Running, Since: now.Add(-3 * time.Second),
				Restarts: 1, Exits: []supervise.Exit{{At: now.Add(-4 * time.Second), PID: 9,
					Signal: "SIGKILL"}}},
			{Name: "iod1", PID: 10, Status: supervise.Waiting},
		},
		Servers: []Server{
			{ID: 1, Addr: "127.0.0.1:1", Up: true, Counts: []Count{
				{"requests_read", 41}, {"cache_hits", 3}, {"cache_misses", 1},
				{"memory_bound_bytes", 512 << 20}, {"memory_resident_bytes", 100 << 20},
				{"memory_plan_cache_bytes", 304 << 20}, {"memory_plan_heap_bytes", 32 << 20}},
				Way: Way{Provider: "tcp", WhyNot: []Step{{Provider: "shm", Reason: "no rights"}}}},
			{ID: 2, Addr: "127.0.0.1:2", Up: true, Problem: "timed out",
				Way: Way{Provider: "tcp", WhyNot: []Step{{Provider: "shm", Reason: "no rights"}}}},
			{ID: 3, Addr: "127.0.0.1:3"},
		},
		Problems: []string{"something is odd"},
	}
}

func TestTextTellsWhatMatters(t *testing.T) {
	now := time.Now()
	var b strings.Builder
	if err := sample(now).WriteText(&b, now); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"cluster 00ff: running for 1m30s, supervised by process 7",
		"sluice://127.0.0.1:9400", "512 GiB free of 1 TiB", "2 volumes",
		"killed by SIGKILL, 4s ago", "waiting", "41", "75%", "silent", "down",
		"3 sessions, 5 open files, 1 removed files", "create 9, lookup 2",
		"100 MiB of 512 MiB", "memory of iod1: cache 304 MiB, heap 32 MiB\n", "127.0.0.1:77",
		"! iod2: timed out", "! something is odd", "not shm to iod1, iod2: no rights",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	b.Reset()
	if err := (&Report{Cluster: "00ff"}).WriteText(&b, now); err != nil {
		t.Fatal(err)
	}
	if b.String() != "cluster 00ff: not running\n" {
		t.Errorf("an idle cluster: %q", b.String())
	}
}

func TestJSONKeepsItsKeys(t *testing.T) {
	text, err := json.Marshal(sample(time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	var back map[string]any
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"cluster", "dir", "url", "mount", "running", "pid", "since",
		"problems", "processes", "servers", "volumes", "space"} {
		if _, ok := back[key]; !ok {
			t.Errorf("no %q in %s", key, text)
		}
	}
}

func TestBytesAndAge(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB",
		64 << 20: "64 MiB", 3 << 50: "3 PiB", 1 << 60: "1024 PiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{-1: "0s", 1234 * time.Millisecond: "1.2s",
		61 * time.Second: "1m1s", 90 * time.Minute: "1h30m", 50 * time.Hour: "2d2h"} {
		if got := Age(d); got != want {
			t.Errorf("Age(%v) = %q, want %q", d, got, want)
		}
	}
}
