package store_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
	"github.com/sluice-storage/sluice/meta/store"
)

// quotaOps does random operations in and around trees with quotas. What is refused is refused.
type quotaOps struct {
	s       *store.Store
	session uint64
	rng     *rand.Rand
	dirs    []meta.Ino
}

func newQuotaOps(t *testing.T, s *store.Store, session, seed uint64) *quotaOps {
	o := &quotaOps{s: s, session: session, rng: rand.New(rand.NewPCG(seed, 7))}
	o.dirs = []meta.Ino{meta.RootIno}
	for i := range 3 {
		a, err := s.Make(t.Context(), meta.Caller{}, o.dirs[i], fmt.Sprintf("%cdir", 'a'+i),
			meta.NewFile{Type: meta.Directory, Mode: 0o777})
		if err != nil {
			t.Fatal(err)
		}
		o.dirs = append(o.dirs, a.Ino)
	}
	return o
}

func (o *quotaOps) step(ctx context.Context) {
	c := meta.Caller{Session: o.session}
	dir, to := o.dirs[o.rng.IntN(len(o.dirs))], o.dirs[o.rng.IntN(len(o.dirs))]
	name, other := string(rune('a'+o.rng.IntN(4))), string(rune('a'+o.rng.IntN(4)))
	found, _ := o.s.Lookup(ctx, c, dir, name)
	switch o.rng.IntN(11) {
	case 0, 1:
		_, _ = o.s.Make(ctx, c, dir, name, meta.NewFile{Type: meta.Regular, Mode: 0o644})
	case 2:
		f := meta.NewFile{Type: meta.Directory, Mode: 0o755}
		if a, err := o.s.Make(ctx, c, dir, name+"dir", f); err == nil {
			o.dirs = append(o.dirs, a.Ino)
		}
	case 3:
		_, _ = o.s.Link(ctx, c, found.Ino, to, other)
	case 4:
		_ = metatest.Failed(o.s.Remove(ctx, c, dir, name, false))
	case 5:
		_ = metatest.Failed(o.s.Remove(ctx, c, dir, name+"dir", true))
	case 6:
		_ = metatest.Failed(o.s.Rename(ctx, c, dir, name, to, other, meta.RenameFlags(o.rng.IntN(2)*2)))
	case 7:
		_ = metatest.Failed(o.s.Rename(ctx, c, dir, name+"dir", to, other+"dir", 0))
	case 8:
		size := o.rng.Int64N(1000)
		_, _ = o.s.SetAttr(ctx, c, found.Ino, meta.SetSize, meta.Attr{Size: size})
	case 9:
		h, err := o.s.Create(ctx, c, dir, name, meta.NewFile{Mode: 0o644}, meta.OpenWrite)
		if err == nil {
			_, _ = o.s.Grow(ctx, c, h.Attr.Ino, o.rng.Int64N(5000))
			_ = o.s.Close(ctx, c, meta.Closing{Handle: h.ID, Dirty: true,
				Change: meta.Change{Size: o.rng.Int64N(2000), TruncSeq: h.Attr.TruncSeq}})
		}
	case 10:
		if o.rng.IntN(3) == 0 {
			_ = o.s.RemoveQuota(ctx, c, dir)
			return
		}
		_, _ = o.s.SetQuota(ctx, c, dir, meta.Usage{Bytes: o.rng.Int64N(3) * 4000, Inodes: 20})
	}
}

// everyState runs a check on the state behind every commit: all that a crash can leave.
type everyState struct {
	kv.Store
	check func(kv.Snapshot)
}

func (x *everyState) Commit(ctx context.Context, t *kv.Txn) (kv.Result, error) {
	v, err := x.Store.Commit(ctx, t)
	snap := x.Snapshot()
	defer snap.Close()
	x.check(snap)
	return v, err
}

// TestQuotasAreExactAfterEveryCommit: whatever is cut off behind whichever commit, counters are
// what the inodes take.
func TestQuotasAreExactAfterEveryCommit(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var states atomic.Int64
	engine := &everyState{Store: memkv.New(memkv.Options{})}
	engine.check = func(snap kv.Snapshot) {
		states.Add(1)
		err := store.VerifySnapshot(snap, func(problem string) {
			if strings.Contains(problem, "quota") {
				t.Errorf("state %d: %s", states.Load(), problem)
			}
		})
		if err != nil {
			t.Error(err)
		}
	}
	s := newStore(t, engine)
	info, err := s.NewSession(t.Context(), "quota")
	if err != nil {
		t.Fatal(err)
	}
	o := newQuotaOps(t, s, info.ID, seed)
	for range 600 {
		if o.step(t.Context()); t.Failed() {
			return
		}
	}
	verify(t, s)
	t.Logf("%d states", states.Load())
}

// TestPowerCutKeepsQuotasExact: also a count that was under way, which ends in the next life.
func TestPowerCutKeepsQuotasExact(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	w := newWorld(t)
	o := newQuotaOps(t, w.store, w.session, seed)
	w.must(w.store.Sync(t.Context()))
	for range 20 {
		for range o.rng.IntN(60) {
			o.step(t.Context())
			if o.rng.IntN(15) == 0 {
				w.must(w.store.Sync(t.Context()))
			}
		}
		w.cut()
		o.s, o.session = w.store, w.session
		verify(t, w.store)
		w.counted()
		verify(t, w.store)
	}
}

// counted waits until no tree is being counted.
func (w *world) counted() {
	w.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		all, err := w.store.ListQuotas(w.t.Context(), meta.Caller{}, 0, meta.QuotaPageMax)
		w.must(err)
		left := 0
		for _, q := range all {
			if q.Counting {
				left++
			}
		}
		if left == 0 {
			return
		}
	}
	w.t.Fatal("a tree is never counted")
}

// TestCountCutOffAnywhere: a count that is cut off behind each of its commits is finished by the
// next process, and comes to the same.
func TestCountCutOffAnywhere(t *testing.T) {
	for after := int64(0); ; after++ {
		var left atomic.Int64
		left.Store(1 << 40)
		engine := memkv.New(memkv.Options{Before: func(*kv.Txn) error {
			if left.Add(-1) < 0 {
				return errs.Newf(errs.IO, "test", "", "cut off")
			}
			return nil
		}})
		w := &world{t: t, engine: engine, objects: nil}
		done := w.countCutOff(after, &left)
		if t.Failed() || done {
			t.Logf("%d commits", after)
			return
		}
	}
}

// countCutOff lets a count end behind so many commits. done: it came to its end before.
func (w *world) countCutOff(after int64, left *atomic.Int64) (done bool) {
	ctx := w.t.Context()
	s, err := store.New(ctx, w.engine, store.Options{Objects: noObjects{}, Tick: time.Millisecond})
	w.must(err)
	top, want := meta.RootIno, int64(0)
	for i := range 3 {
		a, err := s.Make(ctx, meta.Caller{}, top, fmt.Sprint("d", i), meta.NewFile{Type: meta.Directory})
		w.must(err)
		top = a.Ino
		for k := range 20 {
			_, err = s.Make(ctx, meta.Caller{}, top, fmt.Sprint("f", k), meta.NewFile{Type: meta.Fifo})
			w.must(err)
		}
		want += 21
	}
	first, err := s.Lookup(ctx, meta.Caller{}, meta.RootIno, "d0")
	w.must(err)
	left.Store(after + 1) // SetQuota itself is one
	_, err = s.SetQuota(ctx, meta.Caller{}, first.Ino, meta.Usage{Inodes: 1})
	w.must(err)
	for end := time.Now().Add(time.Minute); left.Load() >= 0 && !done; {
		time.Sleep(100 * time.Microsecond)
		q, err := s.GetQuota(ctx, meta.Caller{}, first.Ino)
		w.must(err)
		if done = !q.Counting; time.Now().After(end) {
			w.t.Fatal("the count does not end")
		}
	}
	s.Stop()
	left.Store(1 << 40)
	engine, err := w.engine.Reopen()
	w.must(err)
	defer engine.Close()
	w.store, err = store.New(ctx, engine, store.Options{Objects: noObjects{}, Tick: time.Millisecond})
	w.must(err)
	defer w.store.Stop()
	verify(w.t, w.store)
	w.counted()
	verify(w.t, w.store)
	q, err := w.store.GetQuota(ctx, meta.Caller{}, top)
	w.must(err)
	if q.Used.Inodes != want || q.Dir != first.Ino {
		w.t.Errorf("cut off behind %d commits: %+v, want %d inodes", after, q, want)
	}
	return done
}

// noObjects is for services that are asked for no data.
type noObjects struct{ meta.Objects }

// TestCheckCorrectsQuotas: counters that are wrong are found, and corrected while files are made.
func TestCheckCorrectsQuotas(t *testing.T) {
	p := newPatient(t)
	ctx, c := t.Context(), meta.Caller{}
	q, err := p.store.SetQuota(ctx, c, p.dir, meta.Usage{})
	p.must(err)
	p.counted()
	if all := p.check(true); len(all) != 0 {
		t.Fatal(all)
	}
	key := []byte{'K', 0, 0, 0, 0, 0, 0, 0, byte(q.ID), 'i'}
	lost := []byte{'K', 9, 0, 0, 0, 0, 0, 0, 0, 'b'}
	_, err = p.engine.Commit(ctx, &kv.Txn{Adds: []kv.Add{{Key: key, Delta: 5}, {Key: lost, Delta: 1}}})
	p.must(err)
	if all := p.check(false); len(all) != 2 || all[0].Kind != meta.QuotaCount ||
		!strings.Contains(all[0].Text+all[1].Text, "9 inodes") {
		t.Fatal(all)
	}
	stop, made := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for ; ; n++ {
			select {
			case <-stop:
				made <- n
				return
			default:
				_, _ = p.store.Make(ctx, c, p.dir, fmt.Sprint(n), meta.NewFile{Type: meta.Fifo})
			}
		}
	}()
	if all := p.check(true); len(all) != 2 || all[0].State != meta.Repaired {
		t.Error(all)
	}
	close(stop)
	n := <-made
	if all := p.check(false); len(all) != 0 {
		t.Error(all)
	}
	if q, err = p.store.GetQuota(ctx, c, p.dir); err != nil || q.Used.Inodes != int64(n)+4 {
		t.Errorf("%+v, %v, and %d files were made", q, err, n)
	}
	verify(t, p.store)
}

// TestCheckOfQuotasNeedsAllInodes: where an inode cannot be read nobody knows what it takes, and
// the counters are left alone.
func TestCheckOfQuotasNeedsAllInodes(t *testing.T) {
	p := newPatient(t)
	_, err := p.store.SetQuota(t.Context(), meta.Caller{}, p.dir, meta.Usage{})
	p.must(err)
	p.counted()
	key := binary.BigEndian.AppendUint64([]byte{'I'}, uint64(p.sub))
	_, err = p.engine.Commit(t.Context(), &kv.Txn{Puts: []kv.Put{{Key: key, Value: []byte{1}}}})
	p.must(err)
	for _, f := range p.check(true) {
		if f.Kind == meta.QuotaCount {
			t.Errorf("%+v", f)
		}
	}
}

// TestCheckEndsQuotaOfNothing: a quota whose directory was lost goes.
func TestCheckEndsQuotaOfNothing(t *testing.T) {
	p := newPatient(t)
	stray := []byte{'M', 9, 0, 0, 0, 0, 0, 0, 0}
	record := make([]byte, 26)
	record[0], record[8] = 1, 250 // the directory's number
	_, err := p.engine.Commit(t.Context(), &kv.Txn{Puts: []kv.Put{{Key: stray, Value: record}}})
	p.must(err)
	if all := p.check(true); len(all) != 1 || all[0].Kind != meta.RecordStray ||
		all[0].State != meta.Repaired {
		t.Errorf("repaired: %+v", all)
	}
	if all := p.check(false); len(all) != 0 {
		t.Error(all)
	}
	if _, err := p.store.ListQuotas(t.Context(), meta.Caller{}, 0, 9); err != nil {
		t.Error(err)
	}
}

// TestRepairCountsTreesAnew: what a repair has moved about is counted by the next start.
func TestRepairCountsTreesAnew(t *testing.T) {
	w := newWorld(t)
	o := newQuotaOps(t, w.store, w.session, 1)
	_, err := w.store.SetQuota(t.Context(), meta.Caller{}, o.dirs[1], meta.Usage{Bytes: 1 << 20})
	w.must(err)
	file := meta.NewFile{Type: meta.Regular}
	a, err := w.store.Make(t.Context(), meta.Caller{}, o.dirs[3], "f", file)
	w.must(err)
	_, err = w.store.SetAttr(t.Context(), meta.Caller{}, a.Ino, meta.SetSize, meta.Attr{Size: 777})
	w.must(err)
	w.counted()
	w.store.Stop()
	// The name of a directory in the tree is lost: it goes elsewhere, with its file.
	name := append([]byte{'D', 0, 0, 0, 0, 0, 0, 0, byte(o.dirs[2])}, "cdir"...)
	_, err = w.engine.Commit(t.Context(), &kv.Txn{Deletes: [][]byte{name}})
	w.must(err)
	w.must(store.Repair(t.Context(), w.engine, func(string) {}))
	w.start()
	w.counted()
	verify(t, w.store)
	q, err := w.store.GetQuota(t.Context(), meta.Caller{}, o.dirs[2])
	if err != nil || q.Used != (meta.Usage{Inodes: 2}) {
		t.Fatalf("%+v, %v", q, err)
	}
	if _, err := w.store.GetQuota(t.Context(), meta.Caller{}, a.Ino); errs.KindOf(err) != errs.NoData {
		t.Fatalf("what went elsewhere: %v", err)
	}
}

// TestQuotaRaces: what comes between the look and the commit of another.
func TestQuotaRaces(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, p *pair){
		"the last inode": func(t *testing.T, p *pair) {
			p.setQuota(p.dir, meta.Usage{Inodes: 2})
			p.engine.hook = func() { p.must(p.tryIn(p.b, p.dir, "b")) }
			if err := p.tryIn(p.a, p.dir, "a"); errs.KindOf(err) != errs.Quota {
				t.Errorf("both were made: %v", err)
			}
		},
		"made while the directory gets its quota": func(t *testing.T, p *pair) {
			p.engine.hook = func() { p.setQuota(p.dir, meta.Usage{}) }
			p.must(p.tryIn(p.a, p.dir, "a"))
		},
		"moved in while the quota goes": func(t *testing.T, p *pair) {
			p.setQuota(p.dir, meta.Usage{})
			p.engine.hook = func() { p.must(p.b.RemoveQuota(t.Context(), meta.Caller{}, p.dir)) }
			p.must(metatest.Failed(p.a.Rename(t.Context(), meta.Caller{}, meta.RootIno, "f", p.dir, "f", 0)))
		},
		"filled while it goes to another tree": func(t *testing.T, p *pair) {
			p.setQuota(p.dir, meta.Usage{})
			e := p.make(meta.RootIno, "e", meta.Directory)
			p.engine.hook = func() { p.must(p.tryIn(p.b, e, "x")) }
			err := metatest.Failed(p.a.Rename(t.Context(), meta.Caller{}, meta.RootIno, "e", p.dir, "e", 0))
			if errs.KindOf(err) != errs.CrossDevice {
				t.Errorf("a directory with contents moved: %v", err)
			}
		},
		"two trees, one in the other": func(t *testing.T, p *pair) {
			sub := p.make(p.dir, "sub", meta.Directory)
			p.engine.hook = func() { p.setQuota(sub, meta.Usage{}) }
			_, err := p.a.SetQuota(t.Context(), meta.Caller{}, p.dir, meta.Usage{})
			if errs.KindOf(err) != errs.Exists {
				t.Errorf("trees nest: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t)
			test(t, p)
			verify(t, p.a)
		})
	}
}

// setQuota sets a quota through b and waits until it is counted.
func (p *pair) setQuota(dir meta.Ino, limit meta.Usage) {
	p.t.Helper()
	_, err := p.b.SetQuota(p.t.Context(), meta.Caller{}, dir, limit)
	p.must(err)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		q, err := p.b.GetQuota(p.t.Context(), meta.Caller{}, dir)
		p.must(err)
		if !q.Counting {
			return
		}
	}
	p.t.Fatal("the tree is never counted")
}

func (p *pair) tryIn(s *store.Store, dir meta.Ino, name string) error {
	_, err := s.Make(p.t.Context(), meta.Caller{}, dir, name, meta.NewFile{Type: meta.Fifo})
	return err
}

// beforeCommit runs something before commits.
type beforeCommit struct {
	kv.Store
	run func(t *kv.Txn)
}

func (x *beforeCommit) Commit(ctx context.Context, t *kv.Txn) (kv.Result, error) {
	x.run(t)
	return x.Store.Commit(ctx, t)
}

// TestMovedInWhileCounted: a directory that comes in when the walk is done, and the count is not
// yet marked as done, is counted with all that is in it.
func TestMovedInWhileCounted(t *testing.T) {
	var top meta.Ino
	var moved atomic.Bool
	var s *store.Store
	engine := &beforeCommit{Store: memkv.New(memkv.Options{}), run: func(x *kv.Txn) {
		if len(x.Puts) == 1 && x.Puts[0].Key[0] == 'M' && !moved.Swap(true) {
			err := metatest.Failed(s.Rename(t.Context(), meta.Caller{}, meta.RootIno, "in", top, "in", 0))
			if err != nil {
				t.Error(err)
			}
		}
	}}
	s = newStore(t, engine)
	made := func(dir meta.Ino, name string) meta.Ino {
		x, err := s.Make(t.Context(), meta.Caller{}, dir, name, meta.NewFile{Type: meta.Directory})
		if err != nil {
			t.Fatal(err)
		}
		return x.Ino
	}
	top = made(meta.RootIno, "top")
	made(made(made(meta.RootIno, "in"), "sub"), "deep")
	_, err := s.SetQuota(t.Context(), meta.Caller{}, top, meta.Usage{})
	for end := time.Now().Add(time.Minute); err == nil; time.Sleep(time.Millisecond) {
		var q meta.Quota
		q, err = s.GetQuota(t.Context(), meta.Caller{}, top)
		if err == nil && !q.Counting {
			if q.Used.Inodes != 4 || !moved.Load() {
				t.Errorf("%+v, moved %v", q, moved.Load())
			}
			verify(t, s)
			return
		}
		if time.Now().After(end) {
			t.Fatal("the tree is never counted")
		}
	}
	t.Fatal(err)
}

// walked is a store whose tree /top is about to be counted. When the walk comes to commit what it
// found of an inode, something else happens first.
type walked struct {
	t    *testing.T
	s    *store.Store
	top  meta.Ino
	file atomic.Uint64 // the inode; 0: it was met
}

func newWalked(t *testing.T, meet func(w *walked)) *walked {
	w := &walked{t: t}
	w.s = newStore(t, &beforeCommit{Store: memkv.New(memkv.Options{}), run: func(x *kv.Txn) {
		ino := w.file.Load()
		key := binary.BigEndian.AppendUint64([]byte{'I'}, ino)
		for _, p := range x.Puts {
			if ino != 0 && bytes.Equal(p.Key, key) && w.file.CompareAndSwap(ino, 0) {
				meet(w)
			}
		}
	}})
	w.top = w.make(meta.RootIno, "top", meta.Directory)
	return w
}

func (w *walked) make(dir meta.Ino, name string, typ meta.Type) meta.Ino {
	w.t.Helper()
	a, err := w.s.Make(w.t.Context(), meta.Caller{}, dir, name, meta.NewFile{Type: typ})
	if err != nil {
		w.t.Fatal(err)
	}
	return a.Ino
}

func (w *walked) rename(dir meta.Ino, name string, to meta.Ino, newName string,
	flags meta.RenameFlags) {

	if _, err := w.s.Rename(w.t.Context(), meta.Caller{}, dir, name, to, newName, flags); err != nil {
		w.t.Error(err)
	}
}

// count counts the tree and meets the inode.
func (w *walked) count(meet meta.Ino, want int64) {
	w.t.Helper()
	ctx, c := w.t.Context(), meta.Caller{}
	w.file.Store(uint64(meet))
	_, err := w.s.SetQuota(ctx, c, w.top, meta.Usage{})
	for end := time.Now().Add(time.Minute); err == nil && time.Now().Before(end); {
		var q meta.Quota
		if q, err = w.s.GetQuota(ctx, c, w.top); err == nil && !q.Counting {
			if q.Used.Inodes != want || w.file.Load() != 0 {
				w.t.Errorf("%+v, want %d inodes", q, want)
			}
			verify(w.t, w.s)
			return
		}
	}
	w.t.Fatal("the tree is never counted", err)
}

// TestMovedPastTheWalk: what the walk has not come to yet, and goes where it has been, is counted.
func TestMovedPastTheWalk(t *testing.T) {
	for _, name := range []string{"file", "dir"} {
		t.Run(name, func(t *testing.T) {
			var dirs [2]meta.Ino // the first one is looked at last
			w := newWalked(t, func(w *walked) { w.rename(dirs[0], name, dirs[1], name, 0) })
			dirs[1] = w.make(w.top, "b", meta.Directory)
			dirs[0] = w.make(w.top, "a", meta.Directory)
			w.make(dirs[1], "first", meta.Fifo)
			file := w.make(dirs[0], "file", meta.Regular)
			w.make(w.make(dirs[0], "dir", meta.Directory), "in", meta.Fifo)
			w.count(file, 7)
		})
	}
}

// TestMovedBeforeTheWalk: within a directory, entries change places around the walk's own.
func TestMovedBeforeTheWalk(t *testing.T) {
	w := newWalked(t, func(w *walked) {
		w.rename(w.top, "f19", w.top, "f0", 0)
		w.rename(w.top, "f18", w.top, "f1", meta.RenameExchange)
		w.rename(w.top, "dir", w.top, "f2", meta.RenameExchange)
	})
	var last meta.Ino
	for i := range 20 {
		last = w.make(w.top, fmt.Sprint("f", i), meta.Regular)
	}
	w.make(w.make(w.top, "dir", meta.Directory), "in", meta.Fifo)
	w.count(last, 1+19+2)
}
