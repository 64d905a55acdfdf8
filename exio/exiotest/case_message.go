package exiotest

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/exio"
)

// tags: each message goes to the read that asks for it, and the first of any tag to who takes any.
func tags(t *testing.T, r *Rig) {
	for _, size := range []int{10, 100_000} {
		from, to := r.Alloc(0, 4*size), r.Alloc(1, 4*size)
		piece := func(b []byte, i int) [][]byte { return [][]byte{b[i*size : (i+1)*size]} }
		var writes, reads []*pending
		for i := range 4 {
			piece(from, i)[0][0] = byte(i + 1)
			writes = append(writes, begin(t, r.A.Write, exio.Op{Tag: uint64(i), Pieces: piece(from, i)}))
		}
		for _, i := range []int{3, 1} {
			reads = append(reads, begin(t, r.B.Read, exio.Op{Tag: uint64(i), Pieces: piece(to, i)}))
		}
		for _, p := range reads {
			p.good()
		}
		for i := range 2 { // those that are left, in their order
			ev := begin(t, r.B.Read, exio.Op{Tag: exio.AnyTag, Pieces: piece(to, 2*i)}).good()
			if ev.Tag != uint64(2*i) {
				t.Errorf("tag %d, want %d", ev.Tag, 2*i)
			}
		}
		for i, p := range writes {
			p.good()
			if piece(to, i)[0][0] != byte(i+1) {
				t.Errorf("message %d has other bytes", i)
			}
		}
	}
}

// unread messages wait, as many as there is room for; all are there when somebody asks.
func unread(t *testing.T, r *Rig) {
	count := r.Options.Eager + r.Options.Requests + 20
	word := func(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }
	var writes []*pending
	for i := range count {
		writes = append(writes, begin(t, r.A.Write, exio.Op{Tag: uint64(i), Pieces: [][]byte{word(i)}}))
	}
	for i := range r.Options.Eager { // these need nobody
		writes[i].good()
	}
	last := writes[count-1]
	select {
	case <-last.done:
		t.Error("a message has gone that there is no room for")
	default:
	}
	for i := range count {
		got := make([]byte, 8)
		begin(t, r.B.Read, exio.Op{Tag: uint64(i), Pieces: [][]byte{got}}).good()
		if !bytes.Equal(got, word(i)) {
			t.Fatalf("message %d: %x", i, got)
		}
	}
	for _, p := range writes[r.Options.Eager:] {
		p.good()
	}
}

// order: messages of one tag arrive as they were written, short and long ones.
func order(t *testing.T, r *Rig) {
	count := less(200)
	from, to := r.Alloc(0, 1<<20), r.Alloc(1, 1<<20)
	rng := rand.New(rand.NewPCG(3, 3))
	var writes []*pending
	for i := range count {
		n := 1 + rng.IntN(2*r.Options.EagerBytes)
		writes = append(writes, begin(t, r.A.Write, exio.Op{Tag: 5, Note: uint32(i),
			Pieces: [][]byte{from[:n]}}))
	}
	for i := range count {
		ev := begin(t, r.B.Read, exio.Op{Tag: 5, Pieces: [][]byte{to}}).good()
		if ev.Note != uint32(i) {
			t.Fatalf("message %d came as number %d", ev.Note, i)
		}
	}
	for _, p := range writes {
		p.good()
	}
}

// tooLong: a read that is too short fails; what follows is not harmed.
func tooLong(t *testing.T, r *Rig) {
	for _, size := range []int{100, 1 << 20} {
		from, to := r.Alloc(0, size), r.Alloc(1, size)
		read := begin(t, r.B.Read, exio.Op{Tag: 1, Pieces: [][]byte{to[:size-1]}})
		write := begin(t, r.A.Write, exio.Op{Tag: 1, Pieces: [][]byte{from}})
		read.bad(errs.TooBig)
		if size <= r.Options.EagerBytes {
			write.good()
		} else {
			write.bad(errs.TooBig)
		}
		r.pass(t, 2, [][]byte{from}, [][]byte{to}, true)
		// A longer read gets what there is.
		read = begin(t, r.B.Read, exio.Op{Tag: 3, Pieces: [][]byte{to}})
		begin(t, r.A.Write, exio.Op{Tag: 3, Pieces: [][]byte{from[:size/2]}}).good()
		if ev := read.good(); ev.Len != size/2 {
			t.Errorf("%d bytes", ev.Len)
		}
	}
}

// bounds: neither reads nor writes pile up.
func bounds(t *testing.T, r *Rig) {
	var mu sync.Mutex
	ended := 0
	count := func(exio.Event) { mu.Lock(); ended++; mu.Unlock() }
	begun := 0
	for _, do := range []func(*exio.Op) error{r.A.Read, r.A.Write} {
		limit := 2*r.Options.Queue + r.Options.Eager + r.Options.Requests
		var err error
		for range limit {
			if err = do(&exio.Op{Tag: 9, Pieces: [][]byte{{1}}, Done: count}); err != nil {
				break
			}
			begun++
		}
		wantKind(t, err, errs.Again)
	}
	if err := r.A.Close(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if ended != begun {
		t.Errorf("%d of %d operations have ended", ended, begun)
	}
}

// bothWays moves much in both directions at once, by several goroutines.
func bothWays(t *testing.T, r *Rig) {
	const most = 300 << 10
	each := less(60)
	var all sync.WaitGroup
	for side, h := range []exio.Handle{r.A, r.B} {
		other := []exio.Handle{r.B, r.A}[side]
		for g := range 4 {
			from, to := r.Alloc(side, most), r.Alloc(1-side, most)
			rng := rand.New(rand.NewPCG(uint64(side), uint64(g)))
			fill(rng, from)
			all.Go(func() {
				for i := range each {
					n := rng.IntN(most)
					if i%2 == 0 {
						n = rng.IntN(r.Options.EagerBytes)
					}
					tag := uint64(g)<<32 | uint64(i)
					read := begin(t, other.Read, exio.Op{Tag: tag, Pieces: [][]byte{to[:n]}})
					write := begin(t, h.Write, exio.Op{Tag: tag, Pieces: [][]byte{from[:n]}})
					if write.end().Err != nil || read.end().Err != nil || !bytes.Equal(from[:n], to[:n]) {
						t.Errorf("side %d, goroutine %d, message %d of %d bytes", side, g, i, n)
						return
					}
				}
			})
		}
	}
	all.Wait()
}

// peerGoes ends everything at the other side.
func peerGoes(t *testing.T, r *Rig) {
	reads := []*pending{
		begin(t, r.B.Read, exio.Op{Tag: 1, Pieces: [][]byte{r.Alloc(1, 1<<20)}}),
		begin(t, r.B.Write, exio.Op{Tag: 2, Pieces: [][]byte{r.Alloc(1, 1<<20)}}),
	}
	if err := r.A.Close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range reads {
		p.bad(errs.Disconnected)
	}
	nothing := func(exio.Event) { t.Error("nothing was begun") }
	wantKind(t, r.B.Read(&exio.Op{Done: nothing}), errs.Disconnected)
}

// lastWords: what was written before the end can be read after it, by reads that begin only then.
func lastWords(t *testing.T, r *Rig) {
	count := r.Options.Eager
	for i := range count {
		begin(t, r.A.Write, exio.Op{Tag: uint64(i % 2), Note: uint32(i),
			Pieces: [][]byte{{byte(i)}}}).good()
	}
	end := begin(t, r.B.Read, exio.Op{Tag: 9})
	if err := r.A.Close(); err != nil {
		t.Fatal(err)
	}
	end.bad(errs.Disconnected)
	nothing := func(exio.Event) { t.Error("nothing was begun") }
	wantKind(t, r.B.Write(&exio.Op{Done: nothing}), errs.Disconnected)
	for i := range count / 2 {
		got := make([]byte, 1)
		ev := begin(t, r.B.Read, exio.Op{Tag: uint64(i % 2), Pieces: [][]byte{got}}).good()
		if ev.Note != uint32(i) || got[0] != byte(i) {
			t.Fatalf("message %d came as %d, %d", i, ev.Note, got[0])
		}
	}
	wantKind(t, r.B.Read(&exio.Op{Tag: 9, Done: nothing}), errs.Disconnected)
	if err := r.B.Close(); err != nil {
		t.Fatal(err)
	}
	wantKind(t, r.B.Read(&exio.Op{Tag: exio.AnyTag, Done: nothing}), errs.Disconnected)
}

// lastWordsMet: so is what comes while the end is noticed by a write.
func lastWordsMet(t *testing.T, r *Rig) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		ended := make(chan exio.Event, 1)
		op := exio.Op{Tag: 1, Pieces: [][]byte{{1}}, Done: func(ev exio.Event) { ended <- ev }}
		for r.B.Write(&op) == nil {
			if ev := <-ended; ev.Err != nil {
				return
			}
		}
	}()
	for range 3 { // then there is no room, since nobody reads
		begin(t, r.A.Read, exio.Op{Tag: 1, Pieces: [][]byte{{0}}}).good()
	}
	for i := range r.Options.Eager {
		begin(t, r.A.Write, exio.Op{Note: uint32(i)}).good()
	}
	if err := r.A.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range r.Options.Eager {
		if ev := begin(t, r.B.Read, exio.Op{}).good(); ev.Note != uint32(i) {
			t.Fatalf("message %d came as %d", i, ev.Note)
		}
	}
	<-over
}

// chains has every callback begin the next operation.
func chains(t *testing.T, r *Rig) {
	count := less(500)
	from, to := r.Alloc(0, 64), r.Alloc(1, 64)
	over := make(chan error, 2)
	var next [2]func(i int)
	for side, h := range []exio.Handle{r.A, r.B} {
		do, memory := h.Write, from
		if side == 1 {
			do, memory = h.Read, to
		}
		next[side] = func(i int) {
			err := do(&exio.Op{Tag: uint64(i), Pieces: [][]byte{memory}, Done: func(ev exio.Event) {
				if ev.Err != nil || i+1 == count {
					over <- ev.Err
					return
				}
				next[side](i + 1)
			}})
			if err != nil {
				over <- err
			}
		}
		next[side](0)
	}
	for range 2 {
		if err := <-over; err != nil {
			t.Fatal(err)
		}
	}
}

// death ends the connection while much is under way: each operation ends once, and nothing touches
// its memory afterwards.
func death(t *testing.T, r *Rig) {
	const size = 256 << 10
	var all []*pending
	var memory [][]byte
	for i := range uint64(less(40)) {
		from, to := r.Alloc(0, size), r.Alloc(1, size)
		memory = append(memory, to)
		all = append(all, begin(t, r.A.Write, exio.Op{Tag: i, Pieces: [][]byte{from}}))
		op := exio.Op{Tag: i, Pieces: [][]byte{to}}
		p := &pending{t, make(chan exio.Event, 2)}
		op.Done = func(ev exio.Event) { p.done <- ev }
		if err := r.B.Read(&op); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if err := r.A.Close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		p.end()
	}
	if err := r.B.Close(); err != nil {
		t.Fatal(err)
	}
	for _, b := range memory {
		clear(b)
	}
	for _, p := range all {
		if len(p.done) != 0 {
			t.Error("an operation has ended twice")
		}
	}
	for _, b := range memory {
		if bytes.Trim(b, "\x00") != nil && len(bytes.Trim(b, "\x00")) > 0 {
			t.Fatal("memory was written to after the end")
		}
	}
}
