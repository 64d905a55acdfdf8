package process

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ticks is in how many parts of a second /proc counts, on every architecture that Go knows.
const ticks = 100

// Usage is what processes have used so far: processor time, that of children which have ended and
// were waited for included, and the memory that is theirs now. Memory that several of them share
// counts in each.
type Usage struct {
	CPU time.Duration
	RSS int64
}

// process is a line of /proc.
type process struct {
	parent int
	Usage
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
		p.CPU += time.Duration(at(i)) * time.Second / ticks
	}
	p.RSS = at(rss) * int64(os.Getpagesize())
	return p, ok
}

// UsageOf adds up processes and all that descend from them.
func UsageOf(pids []int) (sum Usage) {
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

func addTree(all map[int]process, pids []int) (sum Usage) {
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
		sum.CPU += p.CPU
		sum.RSS += p.RSS
		list = append(list, children[pid]...)
	}
	return sum
}

// Sample reads the memory of processes until stop, which tells the most that they had.
func Sample(pids []int) (stop func() int64) {
	if len(pids) == 0 {
		return func() int64 { return 0 }
	}
	end, most := make(chan struct{}), make(chan int64)
	go func() {
		peak := UsageOf(pids).RSS
		beat := time.NewTicker(200 * time.Millisecond)
		defer beat.Stop()
		for {
			select {
			case <-beat.C:
				peak = max(peak, UsageOf(pids).RSS)
			case <-end:
				most <- max(peak, UsageOf(pids).RSS)
				return
			}
		}
	}()
	return func() int64 { close(end); return <-most }
}

// Settle waits until processes are quiet, because work that a system puts off costs too, and must
// not disturb the next one. It returns what they have used by then. Who is never quiet is not
// waited for longer than settleMax.
func Settle(pids []int) Usage {
	const (
		settleMax = 3 * time.Second
		pause     = 50 * time.Millisecond
		idle      = time.Second / ticks // of a pause
	)
	last := UsageOf(pids)
	if len(pids) == 0 {
		return last
	}
	quiet := 0
	for end := time.Now().Add(settleMax); quiet < 2 && time.Now().Before(end); {
		time.Sleep(pause)
		now := UsageOf(pids)
		if now.CPU-last.CPU <= idle {
			quiet++
		} else {
			quiet = 0
		}
		last = now
	}
	return last
}
