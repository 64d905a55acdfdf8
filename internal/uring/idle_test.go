package uring

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tasksInIowait is how many threads of this host the kernel counts as waiting for a disk right now.
// What monitors call iowait is the idle time of processors on which that number is not 0.
func tasksInIowait(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "procs_blocked "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(rest))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Skip("the kernel does not say how many threads are blocked")
	return 0
}

// The number of blocked threads is the whole host's. So there are more idle rings than a host has
// threads that wait for disks at every moment of ten seconds.
func TestIdleRingIsNotIowait(t *testing.T) {
	for _, c := range []struct {
		name     string
		features uint32
	}{{"flag", featNoIowait}, {"poll", 0}} {
		t.Run(c.name, func(t *testing.T) {
			const rings = 64
			f := tempFile(t, 4*4096)
			for range rings {
				r, err := openWith(Options{Files: []int{int(f.Fd())}, Depth: 2}, c.features)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { r.Close() })
				if why := r.Stats().Plain; why != "" {
					t.Skipf("no io_uring here: %s", why)
				}
				a := Op{Kind: Write, Bufs: [][]byte{make([]byte, 4096)}}
				b := Op{Kind: Write, Off: 4096, Bufs: a.Bufs}
				r.Do([]*Op{&a, &b}) // through the thread, so that it sleeps after work, too
				if a.Err != nil || b.Err != nil {
					t.Fatal(a.Err, b.Err)
				}
			}
			time.Sleep(200 * time.Millisecond) // until all are asleep
			least := tasksInIowait(t)
			for end := time.Now().Add(10 * time.Second); least >= rings && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
				least = min(least, tasksInIowait(t))
			}
			if least >= rings {
				t.Errorf("%d idle rings, and at least %d threads in iowait", rings, least)
			}
		})
	}
}
