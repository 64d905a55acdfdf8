package admin

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

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
		Problems: []string{"something is odd"}, Local: true,
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

// crowded is a report with much in it, and with names that are long.
func crowded(now time.Time) *Report {
	r := sample(now)
	long := strings.Repeat("long-name-", 9)
	r.Problems = append(r.Problems, strings.Repeat("a sentence of many words ", 20))
	r.Hosts = []Host{
		{Name: "h1", State: "up", Roles: "keeper,meta,iod,gateway", Version: "v1.2.3", Start: 4,
			LastSeen: now.Add(-time.Second), Expires: now.Add(60*24*time.Hour + time.Minute)},
		{Name: long, State: "down", Roles: "iod", Version: long, LastSeen: now.Add(-99 * time.Hour),
			Expires: now.Add(-time.Hour)},
		{Name: "old", State: "gone"}, {Name: "new", Roles: "iod", Expires: now.Add(25 * time.Hour)}}
	for i := range 25 {
		r.Clients = append(r.Clients, Client{Name: "mount /m [9b2f]", Peer: "client " + long, Mount: long,
			Version: "v1.2.3", Open: i, Since: now.Add(-time.Minute), LastSeen: now})
	}
	r.Clients[3].Version = "v1.2.2"
	r.Servers = append(r.Servers,
		Server{ID: 4, Addr: "[2001:db8:1234:5678:9abc:def0:1234:5678]:65535", Host: long, State: "slow",
			Up: true, Version: "v1.2.3", Start: 1 << 40, LastSeen: now.Add(-5 * time.Second), Total: 1 << 50,
			Free: 1 << 49, Counts: []Count{{"requests_read", 1 << 60}}, Way: Way{Provider: "verbs",
				Known: "frames (" + long + ")"}},
		Server{ID: 5, Addr: "h5:1", State: "leaving", LastSeen: now},
		Server{ID: 6, Addr: "h6:1", State: "gone"})
	r.Meta.Version = "v1.2.3"
	return r
}

func TestTextFits(t *testing.T) {
	now := time.Now()
	var b strings.Builder
	if err := crowded(now).WriteText(&b, now); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > Columns {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	for _, want := range []string{"h1", "60 days left", "ended ", "1 day left", "leaving", "slow",
		"and 5 more", "versions differ", "v1.2.2: mount /m [9b2f]", "mount /m  ", "client long-na"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	for _, hidden := range []string{"iod6", "gone"} {
		if strings.Contains(b.String(), hidden) {
			t.Errorf("%q in\n%s", hidden, b.String())
		}
	}
}

func TestWhatIsDown(t *testing.T) {
	now := time.Now()
	got := strings.Join(crowded(now).Down(), "; ")
	for _, want := range []string{"process iod1 is waiting", "iod2 is silent", "iod3 is down",
		"host long-name"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	if strings.Contains(got, "iod5") || strings.Contains(got, "iod6") || strings.Contains(got, "old") {
		t.Errorf("what leaves, or was removed, is missed: %q", got)
	}
	well := &Report{Running: true, Meta: &Meta{}, Servers: []Server{{ID: 1, Up: true, State: "slow"}}}
	if down := well.Down(); len(down) > 0 {
		t.Errorf("nothing is down: %q", down)
	}
	if down := (&Report{Running: true}).Down(); len(down) != 1 {
		t.Errorf("without a metadata service: %q", down)
	}
	if down := (&Report{Dir: "/c"}).Down(); len(down) != 1 {
		t.Errorf("a cluster that does not run: %q", down)
	}
}
