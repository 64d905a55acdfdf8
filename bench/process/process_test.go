package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const line = "42 (a) b (c)) S 7 1 1 0 -1 4 1 2 3 4 150 50 25 25 20 0 3 0 100 1000000 500 " +
		"18446744073709551615 1 1 0"
	p, ok := parseStat(line)
	want := process{parent: 7, Usage: Usage{CPU: 2500 * time.Millisecond,
		RSS: 500 * int64(os.Getpagesize())}}
	if !ok || p != want {
		t.Errorf("%+v, %v; want %+v", p, ok, want)
	}
	for _, bad := range []string{"", "1 (x) S 1",
		"1 (x) S z 1 1 0 -1 4 1 2 3 4 1 1 1 1 1 1 1 1 1 1 1 1"} {
		if _, ok := parseStat(bad); ok {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestAddTree(t *testing.T) {
	one := func(parent int) process { return process{parent, Usage{CPU: time.Second, RSS: 10}} }
	all := map[int]process{1: one(0), 10: one(1), 11: one(10), 12: one(11), 20: one(1)}
	for _, c := range []struct {
		pids []int
		want int64
	}{{[]int{10}, 3}, {[]int{10, 11}, 3}, {[]int{20, 99}, 1}, {nil, 0}, {[]int{1}, 5}} {
		want := Usage{CPU: time.Duration(c.want) * time.Second, RSS: 10 * c.want}
		if got := addTree(all, c.pids); got != want {
			t.Errorf("%v: %+v, want %d processes", c.pids, got, c.want)
		}
	}
}

// TestDaemon starts real processes: one that is ended, and one that ends by itself, whose last
// words are told.
func TestDaemon(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	d, err := Start(log, []string{"WORD=hello"}, "sh", "-c", "echo $WORD; sleep 1000 & wait")
	if err != nil {
		t.Fatal(err)
	}
	said := func() bool { text, _ := os.ReadFile(log); return string(text) == "hello\n" }
	if err := d.Await(t.Context(), "its word", said); err != nil {
		t.Fatal(err)
	}
	if u := UsageOf([]int{d.Pid()}); u.RSS == 0 {
		t.Error("it has no memory")
	}
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := d.Stop(); err != nil { // once more is nothing
		t.Fatal(err)
	}
	d, err = Start(log, nil, "sh", "-c", "echo no >&2; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	err = d.Await(t.Context(), "what never comes", func() bool { return false })
	if err == nil || !strings.Contains(err.Error(), "it ended: hello\nno") {
		t.Errorf("%v", err)
	}
	if _, err := Start(log, nil, "no-such-program"); err == nil {
		t.Error("a program that is not there was started")
	}
}

func TestFreePorts(t *testing.T) {
	ports, err := FreePorts("127.0.0.1", 8)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, p := range ports {
		if p == 0 || seen[p] {
			t.Errorf("%v", ports)
		}
		seen[p] = true
	}
}
