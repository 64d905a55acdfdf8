package mount

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ticks is in how many parts of a second /proc counts, on every architecture that Go knows.
const ticks = 100

// usage is what processes have used so far: processor time, that of children which have ended and
// were waited for included, and the memory that is theirs now. Memory that several of them share
// counts in each.
type usage struct {
	cpu time.Duration
	rss int64
}

// process is a line of /proc.
type process struct {
	parent int
	usage
}

// parseStat reads /proc/PID/stat. The name of the program is in brackets and may contain anything;
// what follows begins with the third field.
func parseStat(text string) (p process, ok bool) {
	end := strings.LastIndex(text, ") ")
	if end < 0 {
		return p, false
	}
	fields := strings.Fields(text[end+2:])
	const parent, utime, cstime, rss = 1, 11, 14, 21
	if len(fields) <= rss {
		return p, false
	}
	at := func(i int) int64 {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		ok = ok && err == nil
		return n
	}
	ok = true
	p.parent = int(at(parent))
	for i := utime; i <= cstime; i++ {
		p.cpu += time.Duration(at(i)) * time.Second / ticks
	}
	p.rss = at(rss) * int64(os.Getpagesize())
	return p, ok
}

// usageOf adds up processes and all that descend from them.
func usageOf(pids []int) (sum usage) {
	if len(pids) == 0 {
		return sum
	}
	all := map[int]process{}
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if p, ok := parseStat(string(text)); ok && err == nil {
			all[pid] = p
		}
	}
	return addTree(all, pids)
}

func addTree(all map[int]process, pids []int) (sum usage) {
	children := map[int][]int{}
	for pid, p := range all {
		children[p.parent] = append(children[p.parent], pid)
	}
	seen := map[int]bool{}
	for list := append([]int(nil), pids...); len(list) > 0; list = list[1:] {
		pid := list[0]
		p, ok := all[pid]
		if !ok || seen[pid] {
			continue
		}
		seen[pid] = true
		sum.cpu += p.cpu
		sum.rss += p.rss
		list = append(list, children[pid]...)
	}
	return sum
}

// sample reads the memory of processes until stop, which tells the most that they had.
func sample(pids []int) (stop func() int64) {
	if len(pids) == 0 {
		return func() int64 { return 0 }
	}
	end, most := make(chan struct{}), make(chan int64)
	go func() {
		peak := usageOf(pids).rss
		beat := time.NewTicker(200 * time.Millisecond)
		defer beat.Stop()
		for {
			select {
			case <-beat.C:
				peak = max(peak, usageOf(pids).rss)
			case <-end:
				most <- max(peak, usageOf(pids).rss)
				return
			}
		}
	}()
	return func() int64 { close(end); return <-most }
}

// settle waits until processes are quiet, because work that a system puts off costs too, and must
// not disturb the next one. It returns what they have used by then. Who is never quiet is not
// waited for longer than settleMax.
func settle(pids []int) usage {
	const (
		settleMax = 3 * time.Second
		pause     = 50 * time.Millisecond
		idle      = time.Second / ticks // of a pause
	)
	last := usageOf(pids)
	if len(pids) == 0 {
		return last
	}
	quiet := 0
	for end := time.Now().Add(settleMax); quiet < 2 && time.Now().Before(end); {
		time.Sleep(pause)
		now := usageOf(pids)
		if now.cpu-last.cpu <= idle {
			quiet++
		} else {
			quiet = 0
		}
		last = now
	}
	return last
}
