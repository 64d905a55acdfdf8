package lock

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

var (
	seedFlag  = flag.Uint64("lock.seed", 0, "one seed of the model test; 0: many")
	seedsFlag = flag.Int("lock.seeds", 100, "how many seeds the model test runs")
)

// model is a table as simple as can be: a map of bytes, and a list of requests. It knows what must
// hold after each step; it does not choose who is granted.
type model struct {
	held  map[byteOf]map[uint64]meta.LockType // by owner
	waits []request
}

type byteOf struct {
	ino meta.Ino
	off int64
}

type request struct {
	n uint64 // in the id; later ones are larger
	l meta.Lock
}

// span is how many bytes of a file the model looks at: the last one stands for all that follow.
const span = 12

func newModel() *model {
	return &model{held: map[byteOf]map[uint64]meta.LockType{}}
}

func bytesOf(l *meta.Lock) (all []byteOf) {
	for off := l.Start; off <= min(l.End, span); off++ {
		all = append(all, byteOf{l.Ino, off})
	}
	return all
}

func conflicting(a, b meta.LockType) bool {
	return a == meta.LockExclusive || b == meta.LockExclusive
}

func (m *model) set(l *meta.Lock, typ meta.LockType) {
	for _, b := range bytesOf(l) {
		if m.held[b] == nil {
			m.held[b] = map[uint64]meta.LockType{}
		}
		if typ == 0 {
			delete(m.held[b], l.Owner)
		} else {
			m.held[b][l.Owner] = typ
		}
	}
}

// holders lists the others whose locks conflict with l.
func (m *model) holders(l *meta.Lock) map[uint64]bool {
	all := map[uint64]bool{}
	for _, b := range bytesOf(l) {
		for o, typ := range m.held[b] {
			if o != l.Owner && conflicting(typ, l.Type) {
				all[o] = true
			}
		}
	}
	return all
}

// before lists the requests of others that are earlier than r and conflict with it.
func (m *model) before(r *request) (all []request) {
	for _, w := range m.waits {
		if w.n < r.n && w.l.Owner != r.l.Owner && w.l.Ino == r.l.Ino && w.l.Start <= r.l.End &&
			r.l.Start <= w.l.End && conflicting(w.l.Type, r.l.Type) {
			all = append(all, w)
		}
	}
	return all
}

// depends tells whether an owner depends on another one: by held locks, and with fair also by
// requests that it must not overtake.
func (m *model) depends(from, on uint64, fair bool, seen map[uint64]bool) bool {
	if seen[from] {
		return false
	}
	seen[from] = true
	for _, w := range m.waits {
		if w.l.Owner != from {
			continue
		}
		next := m.holders(&w.l)
		if fair {
			for _, b := range m.before(&w) {
				next[b.l.Owner] = true
			}
		}
		for o := range next {
			if o == on || m.depends(o, on, fair, seen) {
				return true
			}
		}
	}
	return false
}

func (m *model) find(n uint64) (r request, found bool) {
	i := slices.IndexFunc(m.waits, func(w request) bool { return w.n == n })
	if i < 0 {
		return r, false
	}
	return m.waits[i], true
}

func (m *model) remove(n uint64) {
	m.waits = slices.DeleteFunc(m.waits, func(w request) bool { return w.n == n })
}

// granted checks that a request may be granted now, and notes it.
func (m *model) granted(r *request) error {
	if h := m.holders(&r.l); len(h) > 0 {
		return fmt.Errorf("request %d is granted, and owners %v hold it", r.n, h)
	}
	if !m.covers(&r.l) {
		for _, b := range m.before(r) {
			if !m.depends(b.l.Owner, r.l.Owner, true, map[uint64]bool{}) {
				return fmt.Errorf("request %d overtakes %d", r.n, b.n)
			}
		}
	}
	m.remove(r.n) // only now: others may have waited behind it
	m.set(&r.l, r.l.Type)
	return nil
}

// covers tells whether an owner has what it asks for.
func (m *model) covers(l *meta.Lock) bool {
	for _, b := range bytesOf(l) {
		if m.held[b][l.Owner] < l.Type {
			return false
		}
	}
	return true
}

// settled checks that nobody waits who need not, and that nobody waits for itself.
func (m *model) settled() error {
	for _, w := range m.waits {
		if len(m.holders(&w.l)) == 0 && len(m.before(&w)) == 0 {
			return fmt.Errorf("request %d waits for nobody", w.n)
		}
		if m.depends(w.l.Owner, w.l.Owner, false, map[uint64]bool{}) {
			return fmt.Errorf("request %d waits for itself", w.n)
		}
	}
	return nil
}

// run is a table beside its model.
type run struct {
	t     *Table
	m     *model
	n     uint64
	after uint64
	rnd   *rand.Rand
	owner int
}

func idOf(n uint64) (id ID) {
	binary.BigEndian.PutUint64(id[8:], n)
	return id
}

func numberOf(id [16]byte) uint64 { return binary.BigEndian.Uint64(id[8:]) }

const one = 1 // the session: its events tell the order of grants

func (r *run) draw() meta.Lock {
	l := meta.Lock{Ino: meta.Ino(1 + r.rnd.IntN(2)), Kind: meta.LockRange,
		Owner: uint64(1 + r.rnd.IntN(r.owner)), Type: meta.LockType(1 + r.rnd.IntN(2))}
	l.Start = int64(r.rnd.IntN(span))
	l.End = min(l.Start+int64(r.rnd.IntN(5)), span-1)
	if r.rnd.IntN(8) == 0 {
		l.End = meta.LockEndMax
	}
	return l
}

// fetch applies what has become of waiting requests.
func (r *run) fetch() error {
	for {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		news, err := r.t.Await(ctx, one, 9, r.after)
		if err != nil {
			return err
		}
		for _, v := range news.Events {
			w, found := r.m.find(numberOf(v.ID))
			switch {
			case !found:
				return fmt.Errorf("request %d had ended already", numberOf(v.ID))
			case v.Kind == errs.OK:
				if err := r.m.granted(&w); err != nil {
					return err
				}
			case v.Kind == errs.Deadlock:
				r.m.remove(w.n)
			default:
				return fmt.Errorf("request %d ended with %v", w.n, v.Kind)
			}
		}
		if r.after = news.Next; len(news.Events) == 0 {
			return nil
		}
	}
}

func (r *run) step() error {
	r.n++
	l := r.draw()
	q := request{r.n, l}
	switch k := r.rnd.IntN(10); {
	case k < 6:
		r.m.waits = append(r.m.waits, q)
		circle := r.m.depends(l.Owner, l.Owner, false, map[uint64]bool{})
		r.m.remove(q.n)
		state, err := r.t.Lock(one, idOf(r.n), &l, k < 4)
		switch {
		case errs.KindOf(err) == errs.Deadlock && !circle:
			return fmt.Errorf("request %d is no deadlock", q.n)
		case errs.KindOf(err) == errs.Busy && k < 4:
			return err
		case err != nil:
		case state == meta.LockGranted:
			if err := r.m.granted(&q); err != nil {
				return err
			}
		default:
			r.m.waits = append(r.m.waits, q)
		}
	case k < 9:
		r.t.Unlock(one, idOf(r.n), &l)
		r.m.set(&l, 0)
	case len(r.m.waits) > 0:
		w := r.m.waits[r.rnd.IntN(len(r.m.waits))]
		if r.t.Cancel(one, idOf(w.n)) {
			return fmt.Errorf("request %d was granted and nobody was told", w.n)
		}
		r.m.remove(w.n)
	}
	if err := r.fetch(); err != nil {
		return err
	}
	return r.m.settled()
}

// first compares, for requests of every beginning that reach to the end of the file, where the lock
// begins that they would have to wait for with where the model has it, or more of it before.
func (r *run) first(ino meta.Ino, typ meta.LockType) error {
	want, none := int64(0), true
	for off := int64(span); off >= 0; off-- {
		l := meta.Lock{Ino: ino, Owner: 99, Kind: meta.LockRange, Type: typ, Start: off, End: off}
		if len(r.m.holders(&l)) > 0 {
			want, none = off, false
		}
		l.End = meta.LockEndMax
		got, found, err := r.t.Test(one, &l)
		if err != nil {
			return err
		}
		if !none && (!found || max(got.Start, off) != want) {
			return fmt.Errorf("from byte %d of %d: %+v, %v, want one that begins at %d", off, ino, got,
				found, want)
		}
	}
	return nil
}

// same compares what is held, as others see it.
func (r *run) same() error {
	for ino := meta.Ino(1); ino <= 2; ino++ {
		for _, typ := range []meta.LockType{meta.LockShared, meta.LockExclusive} {
			if err := r.first(ino, typ); err != nil {
				return err
			}
		}
		for off := int64(0); off <= span; off++ {
			held := r.m.held[byteOf{ino, off}]
			for _, typ := range []meta.LockType{meta.LockShared, meta.LockExclusive} {
				l := meta.Lock{Ino: ino, Owner: 99, Kind: meta.LockRange, Type: typ, Start: off, End: off}
				got, found, err := r.t.Test(one, &l)
				if err != nil {
					return err
				}
				if want := len(r.m.holders(&l)) > 0; found != want ||
					found && !conflicting(held[got.Owner], typ) {
					return fmt.Errorf("byte %d of %d: %+v, want %v", off, ino, got, held)
				}
			}
		}
	}
	return nil
}

// drain lets owners that do not wait release everything, until nobody waits.
func (r *run) drain() error {
	for len(r.m.waits) > 0 {
		waiting := map[uint64]bool{}
		for _, w := range r.m.waits {
			waiting[w.l.Owner] = true
		}
		was := len(r.m.waits)
		for o := uint64(1); o <= uint64(r.owner); o++ {
			for ino := meta.Ino(1); ino <= 2 && !waiting[o]; ino++ {
				r.n++
				l := meta.Lock{Ino: ino, Owner: o, Kind: meta.LockRange, End: meta.LockEndMax}
				r.t.Unlock(one, idOf(r.n), &l)
				r.m.set(&l, 0)
				if err := r.fetch(); err != nil {
					return err
				}
			}
		}
		if len(r.m.waits) == was {
			return fmt.Errorf("%d requests wait for ever", was)
		}
	}
	return nil
}

func runSeed(seed uint64) error {
	r := &run{t: New(Options{Life: 9}), m: newModel(), rnd: rand.New(rand.NewPCG(seed, 1)),
		owner: 2 + int(seed%5)}
	for i := range 150 {
		if err := r.step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		if i%10 == 0 {
			if err := r.same(); err != nil {
				return fmt.Errorf("step %d: %w", i, err)
			}
		}
	}
	if err := r.drain(); err != nil {
		return err
	}
	r.t.End(one)
	if held, waiting := r.t.Counts(); held+waiting+len(r.t.files)+len(r.t.owners) != 0 {
		return fmt.Errorf("left behind: %d locks, %d requests, %d files, %d owners", held, waiting,
			len(r.t.files), len(r.t.owners))
	}
	return nil
}

// TestModel compares random requests with the model: nobody holds what conflicts, nobody overtakes
// without need, nobody waits for nothing, no circle stands, and none is seen where there is none.
func TestModel(t *testing.T) {
	first, last := uint64(1), uint64(*seedsFlag)
	if *seedFlag != 0 {
		first, last = *seedFlag, *seedFlag
	}
	for seed := first; seed <= last; seed++ {
		if err := runSeed(seed); err != nil {
			t.Fatalf("seed %d: %v (repeat with -lock.seed)", seed, err)
		}
	}
}
