package main

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/internal/activity"
	"github.com/sluice-storage/sluice/mount"
)

// seen is what onlookers see of this process: what every process knows of itself, and the rest.
func seen(process, kind string, fill func(*activity.Snapshot)) func() *activity.Snapshot {
	return func() *activity.Snapshot {
		s := &activity.Snapshot{Process: process, Kind: kind, PID: os.Getpid(), CPU: cpuTime(),
			Resident: residentBytes()}
		fill(s)
		return s
	}
}

// cpuTime is what this process has used.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peersMax is how many clients are named. The rest have a number.
const peersMax = 2000

// activity is what onlookers see of the metadata service, which also knows the clients' names.
func (h *metaHandler) activity(s *activity.Snapshot) {
	h.server.Activity().Snapshot(s)
	for i, c := range h.names.Clients() {
		s.Sessions++
		s.Open += c.Open
		if i < peersMax {
			s.Peers = append(s.Peers, activity.Peer{ID: c.Session, Name: c.Name, Open: c.Open})
		}
	}
}

// mountActivity is what onlookers see of a mount. Its clients are threads, as the kernel tells
// them, of processes, which people know by name.
func mountActivity(m *mount.Mounted, s *activity.Snapshot) {
	m.Activity(s)
	for i := range s.Clients {
		c := &s.Clients[i]
		c.Group, c.Name = processOf(c.ID)
	}
}

// processOf is the process of a thread, and its name; 0 if it is gone.
func processOf(thread uint64) (pid uint64, name string) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", thread))
	if err != nil {
		return 0, ""
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "Tgid:"); ok {
			pid, _ = strconv.ParseUint(strings.TrimSpace(value), 10, 32) // 0 where there is none
		}
	}
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return pid, ""
	}
	return pid, strings.TrimSpace(string(comm))
}

// mountFamilies are the metrics of a mount.
func mountFamilies(fs *client.FS, m *mount.Mounted) []admin.Family {
	f := families{all: clientFamilies(fs.Stats(), fs.Network())}
	var s activity.Snapshot
	m.Activity(&s)
	f.mount(&s)
	return f.all
}

// mount are those of the kernel's requests.
func (f *families) mount(s *activity.Snapshot) {
	f.gauge("mount_open_files", "Files that programs have open on the mount.", int64(s.Open))
	f.times("mount_request_seconds", "Time that the kernel's requests take, by operation.", s.Ops)
}

// times are histograms by operation, with a bucket for each power of two from about a microsecond
// to half a minute.
func (f *families) times(name, help string, ops []activity.OpUse) {
	const first, last = 10, 35
	d := admin.Family{Name: name, Help: help, Kind: admin.Histogram, Labels: []string{"op"}}
	for _, op := range ops {
		dist := &admin.Dist{Count: op.Count, Sum: op.Sum.Seconds()}
		next, sum := 0, uint64(0)
		for i := first; i <= last; i++ {
			for next < len(op.Buckets) && op.Buckets[next].Below <= 1<<i {
				sum += op.Buckets[next].Count
				next++
			}
			dist.Bounds = append(dist.Bounds, math.Ldexp(1e-9, i))
			dist.Counts = append(dist.Counts, sum)
		}
		d.Series = append(d.Series, admin.Series{Labels: []string{op.Op}, Dist: dist})
	}
	f.all = append(f.all, d)
}
