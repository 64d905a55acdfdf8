package top

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sluice-storage/sluice/internal/activity"
)

var moment = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// bucketsOf are n requests of a time each.
func bucketsOf(n uint64, d time.Duration) []activity.Bucket {
	return []activity.Bucket{{From: d, Below: d + d/4, Count: n}}
}

// metaAt is a metadata service after some seconds of work.
func metaAt(secs uint64) *activity.Snapshot {
	return &activity.Snapshot{Process: "meta", Kind: "meta", PID: 10,
		Uptime: time.Duration(secs) * time.Second, CPU: time.Duration(secs) * time.Second / 4,
		Resident: 40 << 20, Sessions: 2, Open: 7,
		Ops: []activity.OpUse{
			{Op: "create", Count: 300 * secs, Failed: 3 * secs, Sum: time.Duration(secs) * 300 * 40000,
				Buckets: bucketsOf(300*secs, 40*time.Microsecond)},
			{Op: "listen", Waits: true, Count: 2 * secs, Sum: time.Duration(secs) * 2 * time.Second,
				Buckets: bucketsOf(2*secs, time.Second)},
		},
		Clients: []activity.Use{{ID: 1, Requests: 300 * secs, Read: 1000 * secs}},
		Objects: []activity.Use{{ID: 77, Requests: 300 * secs}},
		Slow: []activity.Slow{{Op: "create", Client: 1, Object: 77, Name: "n\x1b[2Jame",
			Ago: 3 * time.Second, Took: 5 * time.Millisecond}},
		Peers: []activity.Peer{{ID: 1, Name: "host:1 [boot/1/2/3]", Open: 5},
			{ID: 2, Name: "mount /home/user/a/rather/long/path/for/a/mount [boot/1/2/4]", Open: 2}},
	}
}

func iodAt(n int, secs uint64) *activity.Snapshot {
	return &activity.Snapshot{Process: fmt.Sprint("iod", n), Kind: "iod", PID: 20 + n,
		Uptime: time.Duration(secs) * time.Second, Resident: 512 << 20,
		Ops: []activity.OpUse{{Op: "read", Count: 1000 * secs,
			Sum:     time.Duration(secs) * 1000 * time.Millisecond,
			Buckets: bucketsOf(1000*secs, time.Duration(n)*time.Millisecond)}},
		Clients: []activity.Use{{ID: 1, Requests: 1000 * secs, Read: secs << 30, Written: secs << 20}},
		Objects: []activity.Use{{ID: 88, Requests: 1000 * secs, Read: secs << 30}},
		Slow: []activity.Slow{{Op: "read", Client: 1, Object: 88, Took: 80 * time.Millisecond,
			Bytes: 1 << 20, Failed: true, Phases: []activity.Phase{{Name: "disk", Took: 78e6}}}},
		Running: []activity.Slow{{Op: "write", Client: 9, Object: 88, Took: 30 * time.Second,
			Phase: "disk"}},
	}
}

func mountAt(secs uint64) *activity.Snapshot {
	return &activity.Snapshot{Process: "mount", Kind: "mount", PID: 30, Open: 2,
		Uptime: time.Duration(secs) * time.Second,
		Clients: []activity.Use{{ID: 4711, Name: "dd", Requests: 5 * secs, Written: secs << 19},
			{ID: 4712, Group: 4711, Name: "dd", Requests: 5 * secs, Written: secs << 19}},
		Ops: []activity.OpUse{{Op: "write", Count: 10 * secs, Sum: time.Duration(secs),
			Buckets: bucketsOf(10*secs, 300*time.Microsecond)}},
	}
}

func at(d time.Duration, s *activity.Snapshot) Sample { return Sample{At: moment.Add(d), Snap: s} }

// example is a cluster over two seconds, with an I/O server that was started again, and one that
// does not answer.
func example() *View {
	restarted := iodAt(2, 1)
	restarted.PID = 99
	before := map[string]Sample{"meta": at(0, metaAt(10)), "iod1": at(0, iodAt(1, 10)),
		"iod2": at(0, iodAt(2, 10)), "mount": at(0, mountAt(10))}
	now := map[string]Sample{"meta": at(2*time.Second, metaAt(12)),
		"iod1": at(2*time.Second, iodAt(1, 12)), "iod2": at(2*time.Second, restarted),
		"iod3": {At: moment, Problem: "connection refused"}, "mount": at(2*time.Second, mountAt(12))}
	return Compute("/c", before, now, moment.Add(2*time.Second))
}

func TestRates(t *testing.T) {
	v := example()
	near := func(what string, got, want float64) {
		t.Helper()
		if got < want*0.99 || got > want*1.01 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	near("requests", v.Totals.Requests, 302+1000+1000)
	near("failed", v.Totals.Failed, 3)
	near("read", v.Totals.Read, 2<<30+1000)
	near("written", v.Totals.Written, 2<<20)
	near("interval", v.Interval, 2)
	if v.Totals.Clients != 2 || v.Totals.Open != 7 || len(v.Processes) != 5 {
		t.Errorf("%+v, %d processes", v.Totals, len(v.Processes))
	}
	for _, p := range v.Processes {
		switch p.Name {
		case "meta":
			near("cpu", p.CPU, 0.25)
			if p.P99 > 1 { // what waits by its nature does not count
				t.Errorf("%+v", p)
			}
		case "iod3":
			if p.Up || p.Kind != "iod" || p.Problem == "" {
				t.Errorf("%+v", p)
			}
		}
	}
	op := v.Ops[0]
	if op.Kind != "iod" || op.Op != "read" {
		t.Fatalf("%+v", op)
	}
	near("reads", op.Requests, 2000)
	near("mean", op.Mean, 1)
	if op.P50 < 1 || op.P50 > 1.3 || op.P99 < 2 || op.P99 > 2.6 { // two thirds took 1 ms, the rest 2
		t.Errorf("%+v", op)
	}
	if len(v.Clients) != 2 || v.Clients[0].Name != "host:1" || v.Clients[1].Open != 2 {
		t.Errorf("%+v", v.Clients)
	}
	if len(v.Slow) != 5 || !v.Slow[0].Running || v.Slow[0].Client != "session 9" ||
		v.Slow[0].Where != "in disk" || v.Slow[2].Where != "disk 78ms" {
		t.Errorf("%+v", v.Slow)
	}
	if len(v.Programs) != 1 || v.Programs[0].Name != "dd" || len(v.Files) != 2 {
		t.Errorf("%+v %+v", v.Programs, v.Files)
	}
}

// TestEmpty: nobody is there, which is a view, too; its lists are lists.
func TestEmpty(t *testing.T) {
	v := Compute("/c", nil, nil, moment)
	text, err := json.Marshal(v)
	if err != nil || strings.Contains(string(text), "null") {
		t.Errorf("%s, %v", text, err)
	}
	if s := Draw(v, Screen{Width: 60, Height: 5}); !strings.Contains(s, "0 of 0 processes") {
		t.Errorf("%q", s)
	}
}

func TestOrders(t *testing.T) {
	v := example()
	first := map[Order]string{ByRequests: "read", ByBytes: "read", ByLatency: "read", ByName: "read"}
	for o, want := range first {
		v.Sort(o)
		if v.Ops[0].Op != want {
			t.Errorf("by %s: %+v", o, v.Ops)
		}
		if last := v.Ops[len(v.Ops)-1]; o == ByLatency && !last.Waits {
			t.Errorf("by latency: %+v", v.Ops)
		}
	}
	v.Sort(ByName)
	if v.Clients[0].Name != "host:1" || v.Files[0].Inode != 77 {
		t.Errorf("%+v %+v", v.Clients, v.Files)
	}
	v.Sort(ByBytes)
	if v.Files[0].Inode != 88 {
		t.Errorf("%+v", v.Files)
	}
}

// TestScreens compares what is drawn at some sizes with testdata. SLUICE_UPDATE=1 writes it anew.
func TestScreens(t *testing.T) {
	for name, s := range map[string]Screen{
		"wide":    {Width: 140, Height: 50},
		"usual":   {Width: 80, Height: 24},
		"narrow":  {Width: 44, Height: 20},
		"low":     {Width: 100, Height: 8},
		"slow":    {Width: 120, Height: 20, Page: SlowOnes, Order: ByLatency, Note: "PAUSED"},
		"clients": {Width: 80, Height: 20, Page: Clients},
		"help":    {Width: 80, Height: 24, Help: true},
		"plain":   {Rows: 2},
	} {
		got := Draw(example(), s)
		file := filepath.Join("testdata", name+".txt")
		if os.Getenv("SLUICE_UPDATE") != "" {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
	}
}

// TestEverySize: nothing is drawn outside of the screen, whatever its size, and names cannot move
// the cursor.
func TestEverySize(t *testing.T) {
	v := example()
	for width := 1; width < 200; width += 3 {
		for _, height := range []int{1, 2, 3, 5, 9, 24, 60} {
			for page := range Pages {
				text := Draw(v, Screen{Width: width, Height: height, Page: page})
				lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
				if len(lines) > height {
					t.Fatalf("%dx%d: %d lines", width, height, len(lines))
				}
				for _, l := range lines {
					if utf8.RuneCountInString(l) > width || strings.ContainsRune(l, '\x1b') {
						t.Fatalf("%dx%d: %q", width, height, l)
					}
				}
			}
		}
	}
}

func TestColor(t *testing.T) {
	text := Draw(example(), Screen{Width: 80, Height: 40, Color: true})
	if !strings.Contains(text, "\x1b[31miod3") || strings.Count(text, "\x1b[31m")+
		strings.Count(text, "\x1b[1m") != strings.Count(text, "\x1b[0m") {
		t.Errorf("%q", text)
	}
}

func TestNumbers(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0us", 850 * time.Microsecond: "850us",
		1200 * time.Microsecond: "1.20ms", 45 * time.Millisecond: "45ms", 3400 * time.Millisecond: "3.4s",
		130 * time.Second: "2m10s", -1: "0"} {
		if got := Short(d); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
	for v, want := range map[float64]string{0: "-", 0.25: "0.2", 9.94: "9.9", 10: "10", 99999: "99999",
		123456: "123k", 12e6: "12M"} {
		if got := rate(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
	if got := bytes(1.5 * (1 << 20)); got != "1.5M" {
		t.Errorf("1.5 MiB: %s", got)
	}
}
