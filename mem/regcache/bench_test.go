package regcache

import (
	"context"
	"testing"
)

func BenchmarkHit(b *testing.B) {
	r := newRig(b, Options{}, 1024*page)
	ctx := context.Background()
	for i := range 512 {
		r.get(b, r.at(2*i, 1)).Put()
	}
	piece := r.at(500, 1)
	b.ReportAllocs()
	for b.Loop() {
		ref, _ := r.Get(ctx, piece)
		ref.Put()
	}
}

func BenchmarkHitByEight(b *testing.B) {
	r := newRig(b, Options{}, 1024*page)
	r.get(b, r.mem).Put()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			ref, _ := r.TryGet(r.at(7, 3))
			ref.Put()
		}
	})
}

// BenchmarkMiss evicts one registration and makes another, what the domain does included.
func BenchmarkMiss(b *testing.B) {
	r := newRig(b, Options{Bytes: 64 * page}, 1024*page)
	r.domain = r.m.Domain // counting costs more than all the rest
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		r.get(b, r.at(i%1000, 1)).Put()
		i++
	}
}

// BenchmarkList768 is the lineage's request: 768 rows of one array, hinted, again and again.
func BenchmarkList768(b *testing.B) {
	r := newRig(b, Options{}, 2048*768)
	r.Hint(r.mem)
	list := r.rows(768, 1024, 2048)
	b.ReportAllocs()
	for b.Loop() {
		for i := range list {
			list[i].Reg = nil
		}
		l, err := r.GetList(context.Background(), list)
		if err != nil {
			b.Fatal(err)
		}
		l.Put()
	}
}
