package exiotest

import (
	"math/rand/v2"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/exio"
)

// sizes are around the limits of eager messages, packing and one transfer.
func sizes(t *testing.T, r *Rig) {
	rng := rand.New(rand.NewPCG(1, 1))
	eager := r.Options.EagerBytes
	most := 5 << 20
	from, to := r.Alloc(0, most), r.Alloc(1, most)
	answer, back := r.Alloc(1, 1), r.Alloc(0, 1)
	fill(rng, from)
	tag := uint64(0)
	for _, n := range []int{0, 1, 100, eager - 1, eager, eager + 1, 64<<10 - 1, 64 << 10, 64<<10 + 1,
		1 << 20, most} {
		for _, first := range []bool{true, false} {
			clear(to)
			ev := r.pass(t, tag, [][]byte{from[:n]}, [][]byte{to[:n]}, first)
			if want := exio.Eager; !r.Stored && n <= eager && ev.How != want {
				t.Errorf("%d bytes went by %v", n, ev.How)
			} else if !r.Stored && n > eager && ev.How != exio.Rendezvous {
				t.Errorf("%d bytes went by %v", n, ev.How)
			}
			tag += uint64(n)
			if !r.Stored { // an answer, with which the credits for what was read come back
				read := begin(t, r.A.Read, exio.Op{Tag: exio.AnyTag, Pieces: [][]byte{back}})
				begin(t, r.B.Write, exio.Op{Pieces: [][]byte{answer}}).good()
				read.good()
			}
		}
	}
}

// unequal moves three pieces to five, with a parent and without, and memory of the program's own.
func unequal(t *testing.T, r *Rig) {
	rng := rand.New(rand.NewPCG(2, 2))
	const size = 1 << 20
	for _, own := range []bool{false, true} {
		from, to := r.Alloc(0, size), r.Alloc(1, 2*size)
		if own {
			from, to = make([]byte, size), make([]byte, 2*size)
		}
		fill(rng, from)
		for i, n := range []int{3000, 30_000, 300_000} {
			clear(to)
			a := [][]byte{from[:n], from[2*n : 2*n+n/2], from[n : n+n/2]}
			b := [][]byte{to[100 : 100+n/5], to[n : n+n/5], to[2*n : 2*n+n/5], to[:50],
				to[size : size+2*n-3*(n/5)-50]}
			tag := uint64(i) * size
			r.pass(t, tag, a, b, i%2 == 0)
			clear(to)
			write := begin(t, r.A.Write, exio.Op{Tag: tag, Pieces: a, Parent: from})
			if r.Stored {
				write.good()
			}
			begin(t, r.B.Read, exio.Op{Tag: tag, Pieces: b, Parent: to}).good()
			if !r.Stored {
				write.good()
			}
			if to[100] != from[0] || to[0] == 0 && to[1] == 0 && to[2] == 0 {
				t.Fatal("other bytes")
			}
		}
	}
}

// less is how often something is done: n times, or a quarter of that in short runs, which emulated
// machines make.
func less(n int) int {
	if testing.Short() {
		return max(n/4, 1)
	}
	return n
}

// model moves random shapes and compares the bytes with what was there.
func model(t *testing.T, r *Rig) {
	const size = 600 << 10
	from, to := r.Alloc(0, size), r.Alloc(1, size)
	base := rand.Uint64()
	t.Logf("seed %d", base)
	tag := uint64(0)
	for i := range uint64(less(80)) {
		rng := rand.New(rand.NewPCG(base, i))
		fill(rng, from[:4096])
		n := rng.IntN(size / 2)
		if rng.IntN(2) == 0 {
			n = rng.IntN(2 * r.Options.EagerBytes)
		}
		clear(to)
		a := cut(rng, from, n, 1+rng.IntN(exio.MaxPieces))
		b := cut(rng, to, n, 1+rng.IntN(exio.MaxPieces))
		r.pass(t, tag, a, b, rng.IntN(2) == 0)
		tag += uint64(n) + 1
	}
}

func misuse(t *testing.T, r *Rig) {
	nothing := func(exio.Event) { t.Error("nothing was begun") }
	many := make([][]byte, exio.MaxPieces+1)
	for _, do := range []func(*exio.Op) error{r.A.Read, r.A.Write} {
		wantKind(t, do(&exio.Op{}), errs.Invalid)
		wantKind(t, do(&exio.Op{Pieces: many, Done: nothing}), errs.TooBig)
	}
	wantKind(t, r.A.Write(&exio.Op{Tag: exio.AnyTag, Done: nothing}), errs.Invalid)
	if info := r.A.Info(); info.Driver == "" || info.Name == "" {
		t.Errorf("%+v", info)
	}
}

// closing ends what is pending, and refuses what comes after.
func closing(t *testing.T, r *Rig) {
	var all []*pending
	if !r.Stored {
		for i := range uint64(5) {
			all = append(all, begin(t, r.A.Read, exio.Op{Tag: i, Pieces: [][]byte{r.Alloc(0, 100)}}))
		}
		all = append(all, begin(t, r.A.Write, exio.Op{Tag: 1, Pieces: [][]byte{r.Alloc(0, 1<<20)}}))
	}
	if err := r.A.Close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		p.bad(errs.Closed)
	}
	if err := r.A.Close(); err != nil {
		t.Fatal(err)
	}
	nothing := func(exio.Event) { t.Error("nothing was begun") }
	wantKind(t, r.A.Read(&exio.Op{Done: nothing}), errs.Closed)
	wantKind(t, r.A.Write(&exio.Op{Done: nothing}), errs.Closed)
}
