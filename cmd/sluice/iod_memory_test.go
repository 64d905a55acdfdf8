package main

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/unifier"
)

func TestThePlanAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(memoryMin, 1<<42).Draw(t, "total")
		members := rapid.IntRange(0, 16).Draw(t, "members")
		p, err := planMemory(total, members)
		if err != nil {
			t.Fatal(err)
		}
		var sum int64
		for _, one := range p.parts() {
			if one.bytes <= 0 {
				t.Fatalf("%s has %d bytes", one.name, one.bytes)
			}
			sum += one.bytes
		}
		if sum != total {
			t.Fatalf("the parts are %d of %d", sum, total)
		}
		// A largest request has to fit into what drafts may hold, which is a quarter.
		if p.cache/4 < iod.TransferMax+128<<10 {
			t.Fatalf("a cache of %d", p.cache)
		}
		if p.conns < connectionsMin || int64(p.conns)*connectionBytes > p.connections {
			t.Fatalf("%d connections in %d bytes", p.conns, p.connections)
		}
		if each := int64(p.members); p.pending/each < 4096 || p.index/each < 4096 {
			t.Fatalf("%d members share %d and %d", each, p.pending, p.index)
		}
		if p.dirty() > p.cache/4 {
			t.Fatalf("%d dirty of %d", p.dirty(), p.cache)
		}
	})
}

// More memory means more of everything, and most of it is the cache's.
func TestThePlanGrows(t *testing.T) {
	last := memoryPlan{}
	for total := int64(memoryMin); total <= 3<<39; total *= 2 {
		p, err := planMemory(total, 1)
		if err != nil {
			t.Fatal(err)
		}
		for i, one := range p.parts() {
			if before := last.parts()[i]; one.bytes < before.bytes {
				t.Errorf("%d: %s shrinks from %d to %d", total, one.name, before.bytes, one.bytes)
			}
		}
		if total >= 512<<20 && p.cache < total/2 {
			t.Errorf("%d: the cache has %d", total, p.cache)
		}
		last = p
	}
}

func TestTooLittleMemoryIsRefused(t *testing.T) {
	for _, f := range []memoryFlags{{memory: "95M"}, {memory: "0"}} {
		err := f.check()
		if err == nil || !strings.Contains(explain(err), "at least 96 MiB") {
			t.Errorf("%s: %v", f.memory, err)
		}
	}
	for _, f := range []memoryFlags{{memory: "x"}, {memory: "1G", readahead: "much"},
		{memory: "1G", huge: "perhaps"}, {memory: "1G", ready: "1G"}, {memory: "1G", ready: "all"}} {
		if err := f.check(); err == nil {
			t.Errorf("%+v is taken", f)
		}
	}
	for text, want := range map[string]int64{"": 0, "0": -1, "2M": 2 << 20} {
		f := memoryFlags{readahead: text}
		if got, err := f.ahead(); err != nil || got != want {
			t.Errorf("readahead %q: %d %v", text, got, err)
		}
	}
}

// What is ready from the start is what was asked for.
func TestReadyMemory(t *testing.T) {
	node := tcpNetwork(t).Node
	for text, want := range map[string]int64{"0": 0, "8M": 8 << 20} {
		f := memoryFlags{memory: "96M", ready: text}
		plan, err := f.plan(1)
		if err != nil {
			t.Fatal(err)
		}
		parts := iodParts{}
		if parts.ready, err = f.readyBytes(&plan); err != nil {
			t.Fatal(err)
		}
		store, err := openMemoryStore(0)
		if err != nil {
			t.Fatal(err)
		}
		cache, err := unifier.New(parts.cacheConfig(boundIod(plan, true).cache, node), store)
		if err != nil {
			t.Fatal(err)
		}
		if got := cache.Stats().Ready; got != want {
			t.Errorf("--ready %s: %d bytes are ready", text, got)
		}
		if err := errors.Join(cache.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	}
}

func TestTheProcessKnowsItsMemory(t *testing.T) {
	if n := residentBytes(); n < 1<<20 || n > 1<<40 {
		t.Errorf("resident: %d", n)
	}
	if n := heapBytes(); n < 1<<18 || n > residentBytes()*4 {
		t.Errorf("heap: %d of %d", n, residentBytes())
	}
}
