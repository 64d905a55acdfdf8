package regcache

import (
	"testing"

	"github.com/sluice-storage/sluice/fabric"
)

func BenchmarkHit(b *testing.B) {
	r := newRig(b, Options{Costs: atOnce()})
	all := pages(256)
	r.once(b, all)
	var u Use
	piece := make([]fabric.Sge, 1)
	b.ReportAllocs()
	for b.Loop() {
		piece[0] = fabric.Sge{Buf: all}
		r.Take(&u, piece, nil)
		u.End()
	}
}

// BenchmarkMiss makes a registration for one request, what the domain does included.
func BenchmarkMiss(b *testing.B) {
	r := newRig(b, Options{Costs: atOnce()})
	all := mapped(b, 256)
	b.ReportAllocs()
	for b.Loop() {
		r.once(b, all)
	}
}

// BenchmarkList768 is the lineage's request: 768 rows of one array, again and again.
func BenchmarkList768(b *testing.B) {
	r := newRig(b, Options{Costs: atOnce()})
	all := make([]byte, 2048*768)
	r.once(b, all)
	var u Use
	list := make([]fabric.Sge, 768)
	b.ReportAllocs()
	for b.Loop() {
		for i := range list {
			list[i] = fabric.Sge{Buf: all[i*2048 : i*2048+1024]}
		}
		r.Take(&u, list, nil)
		u.End()
	}
}
