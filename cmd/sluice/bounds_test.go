package main

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/stripe/memstore"
	"github.com/sluice-storage/sluice/unifier"
)

// TestBoundsAddUp: parts of memory are all of it, and no gate lets more in than there is.
func TestBoundsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		plan, err := planMemory(rapid.Int64Range(memoryMin, 1<<40).Draw(t, "memory"), 1)
		if err != nil {
			t.Fatal(err)
		}
		b := boundIod(plan, rapid.Bool().Draw(t, "write-back"))
		value, sum := map[string]bound{}, map[string]int64{}
		for _, one := range b.list() {
			if _, twice := value[one.Name]; twice || one.Why == "" || one.Bytes < 0 || one.Count < 0 {
				t.Fatalf("%+v", one)
			}
			value[one.Name] = one
			sum[one.Of] += one.Bytes
		}
		for _, one := range value {
			if _, ok := value[one.Of]; !ok && one.Of != "" {
				t.Fatalf("%s is a part of %s, which is not there", one.Name, one.Of)
			}
		}
		const slab = 64 << 10
		if sum["memory"] != plan.total {
			t.Fatalf("the parts are %d of %d", sum["memory"], plan.total)
		}
		if left := value["cache"].Bytes - sum["cache"]; left < 0 || left >= slab {
			t.Fatalf("%d bytes of the cache have no purpose", left)
		}
		for _, of := range []string{"loans", "drafts", "direct"} {
			if sum[of] > value[of].Bytes {
				t.Fatalf("the gates of %s let in %d of %d", of, sum[of], value[of].Bytes)
			}
		}
		if value["writes"].Bytes < iod.TransferMax || value["loans"].Bytes < iod.TransferMax {
			t.Fatalf("the largest request does not fit: %+v", value)
		}
		if n := int64(value["conns"].Count); n*connectionBytes > value["connections"].Bytes {
			t.Fatalf("%d connections in %d bytes", n, value["connections"].Bytes)
		}
	})
}

// TestBoundsAreThoseInForce holds what is printed against what a cache says that it has.
func TestBoundsAreThoseInForce(t *testing.T) {
	plan, err := planMemory(memoryMin, 1)
	if err != nil {
		t.Fatal(err)
	}
	b := boundIod(plan, true)
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	cache, err := unifier.New(b.cache, store)
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	s := b.cache.Shares()
	if cache.ReadShare() != s.Loans || cache.TakeShare() != s.Rooms || cache.ChunkMax() != s.Chunk ||
		cache.Shares() != s {
		t.Errorf("%+v, the cache has %+v", s, cache.Shares())
	}
}

func TestBoundsArePrintedAsATree(t *testing.T) {
	var order []string
	list := []bound{{Name: "c", Of: "a"}, {Name: "a"}, {Name: "d"}, {Name: "e", Of: "c"}}
	for _, b := range inTree(list) {
		order = append(order, string(rune('0'+b.depth))+b.Name)
	}
	if got := len(order); got != 4 || order[0] != "1a" || order[1] != "2c" || order[2] != "3e" ||
		order[3] != "1d" {
		t.Error(order)
	}
}
