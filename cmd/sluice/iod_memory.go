package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/mem"
)

// memoryPlan divides the memory of an I/O server. Its one knob is the sum; everything that grows
// with data, clients or requests has a part of it, and each part is kept by whoever uses it:
//
//	heap          what Go needs: tables of the cache and of the store's objects, goroutines, garbage
//	network       eager slots of the message layer
//	connections   receives and replies of each connection; so many may be open
//	pending       what the store has logged and not yet put in place
//	index         pages of the store's index; twice that, since changed ones stay until a checkpoint
//	cache         the rest: cached, lent, drafted, not yet written back, and of direct transfers
//
// Not in it: the program itself and its runtime, for which 60 MiB are enough; memory of clients
// that are on this host, which a server maps but does not own; data of a cluster in memory.
type memoryPlan struct {
	total, cache, network, connections, pending, index, heap int64

	members int // of the store: pending and index are divided among them
	conns   int // how many connections may be open
}

const (
	// memoryMin is the least that a server works with: a request of the largest size, 8 MiB, has to
	// fit into the quarter of the cache that drafts have, and the floors below add up to 48 MiB.
	memoryMin = 96 << 20

	defaultMemory = "512M"

	// connectionBytes is what a busy connection takes. It maps 76 receives and 140 replies of 16 KiB;
	// requests of usual sizes touch the first page or two of a receive and use the same few replies
	// again and again: a hundred busy clients were seen to take 0.3 MiB each. A request that waits at
	// a gate has a goroutine of some 5 KiB: while all credits of a connection wait it takes 0.3 MiB
	// more.
	connectionBytes = 512 << 10

	// connectionsMin is how many connections a server has room for in any event.
	connectionsMin = 32

	// runtimeSlack is of the 60 MiB beyond the plan what Go may use before it collects harder.
	runtimeSlack = 24 << 20
)

// planMemory divides total bytes for a server whose store has so many members.
func planMemory(total int64, members int) (memoryPlan, error) {
	if total < memoryMin {
		return memoryPlan{}, refuse(fmt.Sprintf("--memory %s is too little for an I/O server",
			admin.Bytes(total)), "Give it at least "+admin.Bytes(memoryMin))
	}
	p := memoryPlan{
		total: total, members: max(members, 1),
		heap:        clamp(total/16, 16<<20, 256<<20),
		network:     clamp(total/64, 2<<20, 32<<20),
		connections: clamp(total/8, connectionsMin*connectionBytes, 1<<30),
		pending:     clamp(total/16, 4<<20, 64<<20),
		index:       clamp(total/16, 4<<20, 256<<20),
	}
	p.conns = int(p.connections / connectionBytes)
	p.cache = total - p.heap - p.network - p.connections - p.pending - 2*p.index
	return p, nil
}

func clamp(v, least, most int64) int64 { return min(max(v, least), most) }

// dirty is how much may wait to be written back: a quarter of the cache, so that readers keep
// theirs, and no more than a disk takes in a second or two.
func (p *memoryPlan) dirty() int64 { return min(p.cache/4, 256<<20) }

// applyHeap has Go stay within its part: near it, garbage is collected more often.
func (p *memoryPlan) applyHeap() {
	debug.SetMemoryLimit(p.heap + 2*p.index + runtimeSlack)
}

// part is one part of a plan, for people and metrics.
type part struct {
	name  string
	bytes int64
}

func (p *memoryPlan) parts() []part {
	return []part{{"cache", p.cache}, {"network", p.network}, {"connections", p.connections},
		{"pending", p.pending}, {"index", 2 * p.index}, {"heap", p.heap}}
}

// counts are the plan for sluice status, and what the process uses of it.
func (p *memoryPlan) counts() []iod.Count {
	list := []iod.Count{{Name: "memory_bound_bytes", Value: uint64(p.total)},
		{Name: "memory_resident_bytes", Value: uint64(residentBytes())},
		{Name: "memory_heap_bytes", Value: uint64(heapBytes())}}
	for _, one := range p.parts() {
		list = append(list, iod.Count{Name: "memory_plan_" + one.name + "_bytes",
			Value: uint64(one.bytes)})
	}
	return list
}

// residentBytes is what the process holds now: its own pages, those of files, and reserved huge
// pages. What it maps of its clients is theirs.
func residentBytes() int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	var sum int64
	for line := range bytes.Lines(text) {
		name, rest, _ := bytes.Cut(line, []byte(":"))
		switch string(name) {
		case "RssAnon", "RssFile", "HugetlbPages":
			kb := strings.TrimSuffix(strings.TrimSpace(string(rest)), " kB")
			if n, err := strconv.ParseInt(kb, 10, 64); err == nil {
				sum += n << 10
			}
		}
	}
	return sum
}

// heapBytes is what Go uses now: live objects, garbage, stacks and its own tables.
func heapBytes() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64() - s[1].Value.Uint64())
}

// memoryFlags are how an I/O server uses its memory, and its disk; sluice up hands them to its
// servers.
type memoryFlags struct {
	memory, ready, readahead, huge, reserve string
	writeBack, lend                         bool
}

func (f *memoryFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.memory, "memory", defaultMemory,
		"all memory of an I/O server: cache, network, store; see sluice status for its parts")
	flags.StringVar(&f.ready, "ready", "",
		"how much of the cache is resident and registered from the start, so that the first requests "+
			"wait for none; 0: nothing (default half of it, at most 64 MiB)")
	flags.BoolVar(&f.writeBack, "write-back", true,
		"acknowledge writes that need not be durable from the cache, and write them half a second later")
	flags.BoolVar(&f.lend, "lend", true,
		"let clients on this host that are root or the server's user read its cache directly: one "+
			"copy less; not with --huge-pages on")
	flags.StringVar(&f.readahead, "readahead", "",
		"how far to read ahead of a sequential reader; 0: not (default by the size of the cache)")
	flags.StringVar(&f.huge, "huge-pages", "auto",
		"the cache on huge pages: on (reserved ones, or it does not start), auto (if there are, and "+
			"without --lend), off")
	flags.StringVar(&f.reserve, "reserve", "",
		"how much a store leaves of its file system to others; 0: nothing "+
			"(default a 20th, from 64 MiB to 8 GiB)")
}

// args are the flags for a child.
func (f *memoryFlags) args() []string {
	args := []string{"--memory", f.memory, fmt.Sprintf("--write-back=%v", f.writeBack),
		fmt.Sprintf("--lend=%v", f.lend), "--huge-pages", f.huge}
	for _, given := range [][2]string{{"--ready", f.ready}, {"--readahead", f.readahead},
		{"--reserve", f.reserve}} {
		if given[1] != "" {
			args = append(args, given[0], given[1])
		}
	}
	return args
}

// check finds what a child would refuse.
func (f *memoryFlags) check() error {
	plan, err := f.plan(1)
	if err == nil {
		_, err = f.readyBytes(&plan)
	}
	if err == nil {
		_, err = f.ahead()
	}
	if err == nil {
		_, err = f.hugePages()
	}
	if err == nil {
		_, err = f.leave()
	}
	return err
}

func (f *memoryFlags) plan(members int) (memoryPlan, error) {
	total, err := parseSize(f.memory)
	if err != nil {
		return memoryPlan{}, err
	}
	return planMemory(total, members)
}

// readyBytes is what of the plan's cache is ready from the start; 0: by default; negative: none.
func (f *memoryFlags) readyBytes(plan *memoryPlan) (int64, error) {
	n, err := sizeOrDefault(f.ready)
	if err == nil && n > plan.cache {
		err = refuse(fmt.Sprintf("--ready %s is more than the cache, which has %s", f.ready,
			admin.Bytes(plan.cache)), "Choose less, or give the server more: --memory")
	}
	return n, err
}

// ahead is the longest readahead in bytes; 0: by default; negative: none.
func (f *memoryFlags) ahead() (int64, error) { return sizeOrDefault(f.readahead) }

// leave is what the store leaves of its file system in bytes; 0: by default; negative: nothing.
func (f *memoryFlags) leave() (int64, error) { return sizeOrDefault(f.reserve) }

// sizeOrDefault is a size that may be left out (0) or be 0 (negative).
func sizeOrDefault(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := parseSize(text)
	if err == nil && n == 0 {
		n = -1
	}
	return n, err
}

// hugePages is how much they are wanted.
func (f *memoryFlags) hugePages() (mem.Want, error) {
	switch f.huge {
	case "on":
		return mem.Must, nil
	case "off":
		return mem.No, nil
	case "auto", "":
		return mem.Wish, nil
	}
	return mem.No, refuse("--huge-pages "+f.huge, "Choose of on, auto and off")
}
