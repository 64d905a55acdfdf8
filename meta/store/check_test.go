package store_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
	"github.com/sluice-storage/sluice/meta/store"
)

// sizes is a shelf that tells the sizes of its objects.
type sizes struct {
	shelf
	bytes map[meta.ObjectRef]int64
}

func newSizes() *sizes {
	return &sizes{shelf: shelf{Objects: metatest.NewObjects(), have: map[meta.ObjectRef]bool{}},
		bytes: map[meta.ObjectRef]int64{}}
}

func (s *sizes) set(o meta.ObjectRef, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.have[o] = n > 0
	if s.bytes[o] = n; n == 0 {
		delete(s.have, o)
	}
}

func (s *sizes) ObjectSize(_ context.Context, f meta.FileRef, stripe int) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes[meta.ObjectRef{Ino: f.Ino, Gen: f.Gen, Stripe: uint32(stripe)}], nil
}

// patient is a store with a healthy tree in it, to which damage is done.
type patient struct {
	*world
	have *sizes
	dir  meta.Ino
	file meta.Attr // in dir, with 100 bytes of data
	sub  meta.Ino  // in dir, with a file in it
	run  uint64
}

func newPatient(t *testing.T) *patient {
	p := &patient{world: &world{t: t, engine: memkv.New(memkv.Options{})}, have: newSizes()}
	p.objects = p.have.Objects
	var err error
	p.store, err = store.New(context.Background(), p.engine, store.Options{Objects: p.have,
		Key: p.key, Tick: 2 * time.Millisecond, CollectEvery: time.Hour})
	p.must(err)
	p.join(meta.Server{ID: 1, Addr: "a", StoreID: 1})
	info, err := p.store.NewSession(t.Context(), "check")
	p.must(err)
	p.session = info.ID
	t.Cleanup(func() {
		p.store.Stop()
		_ = p.engine.Close()
	})
	p.dir = p.mk(meta.RootIno, "d", meta.Directory)
	p.file = p.write(p.dir, "file", 100)
	p.sub = p.mk(p.dir, "sub", meta.Directory)
	p.mk(p.sub, "inner", meta.Regular)
	p.must(p.store.SetXattr(t.Context(), meta.Caller{}, p.file.Ino, "user.a", []byte("b"), false,
		false))
	return p
}

func (p *patient) mk(dir meta.Ino, name string, typ meta.Type) meta.Ino {
	p.t.Helper()
	a, err := p.store.Make(p.t.Context(), meta.Caller{}, dir, name,
		meta.NewFile{Type: typ, Mode: 0o755})
	p.must(err)
	return a.Ino
}

// write makes a file of n bytes and closes it.
func (p *patient) write(dir meta.Ino, name string, n int64) meta.Attr {
	p.t.Helper()
	c := meta.Caller{Session: p.session}
	h, err := p.store.Create(p.t.Context(), c, dir, name, meta.NewFile{}, meta.OpenWrite)
	p.must(err)
	p.have.set(meta.ObjectRef{Ino: h.Attr.Ino, Gen: h.Attr.Gen}, n)
	p.must(p.store.Close(p.t.Context(), c, wrote(h.ID, n, 0, 1)))
	return h.Attr
}

// check runs a whole check, in steps of a few records.
func (p *patient) check(repair bool) (all []meta.Finding) {
	p.t.Helper()
	p.run++
	for step := uint64(0); ; step++ {
		page, err := p.store.Check(p.t.Context(), meta.Caller{},
			meta.CheckStep{Run: p.run, Step: step, Repair: repair, Max: 3})
		p.must(err)
		all = append(all, page.Findings...)
		if page.End {
			return all
		}
		if step > 10000 {
			p.t.Fatalf("the run does not end: %+v", page)
		}
	}
}

// damage changes the store behind the service's back.
func (p *patient) damage(t kv.Txn) {
	p.t.Helper()
	_, err := p.engine.Commit(p.t.Context(), &t)
	p.must(err)
}

func key(kind byte, n ...any) []byte {
	k := []byte{kind}
	for _, x := range n {
		switch v := x.(type) {
		case meta.Ino:
			k = binary.BigEndian.AppendUint64(k, uint64(v))
		case string:
			k = append(k, v...)
		}
	}
	return k
}

// get reads a record; it must be there.
func (p *patient) get(key []byte) []byte {
	p.t.Helper()
	snap := p.engine.Snapshot()
	defer snap.Close()
	value, _, err := snap.Get(key)
	p.must(err)
	if value == nil {
		p.t.Fatalf("there is no record %q", key)
	}
	return slices.Clone(value)
}

// edit changes bytes of a record.
func (p *patient) edit(key []byte, at int, b ...byte) kv.Put {
	p.t.Helper()
	value := p.get(key)
	copy(value[at:], b)
	return kv.Put{Key: key, Value: value}
}

// Where fields of an inode's record begin, see record.go.
const (
	atType   = 1
	atNlink  = 16
	atSize   = 28
	atParent = 100
)

// ills are the damages that a check must find.
var ills = []struct {
	name string
	kind meta.FindingKind
	do   func(p *patient)
	left bool // it cannot be repaired
}{
	{"entry without inode", meta.EntryDangling, func(p *patient) {
		ino := p.mk(p.dir, "gone", meta.Fifo)
		p.damage(kv.Txn{Deletes: [][]byte{key('I', ino)},
			Adds: []kv.Add{{Key: []byte("Afiles"), Delta: -1}}})
	}, false},
	{"inode without entry", meta.Nameless, func(p *patient) {
		ino := p.mk(p.dir, "lost", meta.Fifo)
		p.damage(kv.Txn{Deletes: [][]byte{key('D', p.dir, "lost"), key('C', p.dir, ino)},
			Adds: []kv.Add{{Key: key('N', p.dir), Delta: -1}}})
	}, false},
	{"directory without entry", meta.Nameless, func(p *patient) {
		p.damage(kv.Txn{Deletes: [][]byte{key('D', p.dir, "sub"), key('C', p.dir, p.sub)},
			Adds: []kv.Add{{Key: key('N', p.dir), Delta: -1<<32 - 1}}})
	}, false},
	{"lost nlink", meta.LinkCount, func(p *patient) {
		_, err := p.store.Link(p.t.Context(), meta.Caller{}, p.file.Ino, p.dir, "second")
		p.must(err)
		p.damage(kv.Txn{Puts: []kv.Put{p.edit(key('I', p.file.Ino), atNlink, 0, 0, 0, 1)}})
	}, false},
	{"nlink too high", meta.LinkCount, func(p *patient) {
		p.damage(kv.Txn{Puts: []kv.Put{p.edit(key('I', p.file.Ino), atNlink, 0, 0, 0, 7)}})
	}, false},
	{"directory counter", meta.DirCount, func(p *patient) {
		p.damage(kv.Txn{Adds: []kv.Add{{Key: key('N', p.dir), Delta: 3}}})
	}, false},
	{"counter of an empty directory", meta.DirCount, func(p *patient) {
		p.damage(kv.Txn{Adds: []kv.Add{{Key: key('N', p.mk(p.dir, "empty", meta.Directory)), Delta: -1}}})
	}, false},
	{"phantom rmdir", meta.EntryMisplaced, func(p *patient) {
		p.damage(kv.Txn{Deletes: [][]byte{key('I', p.sub), key('N', p.sub), key('T', p.sub),
			key('D', p.dir, "sub"), key('C', p.dir, p.sub)},
			Adds: []kv.Add{{Key: key('N', p.dir), Delta: -1<<32 - 1}, {Key: []byte("Afiles"), Delta: -1}}})
	}, false},
	{"rename cycle", meta.Unreachable, func(p *patient) {
		// sub goes below itself: into its own sub-directory.
		below := p.mk(p.sub, "below", meta.Directory)
		c := p.get(key('C', p.dir, p.sub))
		p.damage(kv.Txn{
			Deletes: [][]byte{key('D', p.dir, "sub"), key('C', p.dir, p.sub)},
			Puts: []kv.Put{{Key: key('D', below, "sub"), Value: p.get(key('D', p.dir, "sub"))},
				{Key: key('C', below, p.sub), Value: c},
				p.edit(key('I', p.sub), atParent, key(0, below)[1:]...)},
			Adds: []kv.Add{{Key: key('N', p.dir), Delta: -1<<32 - 1},
				{Key: key('N', below), Delta: 1<<32 + 1}}})
	}, false},
	{"parent", meta.DirParent, func(p *patient) {
		p.damage(kv.Txn{Puts: []kv.Put{p.edit(key('I', p.sub), atParent, key(0, meta.RootIno)[1:]...)}})
	}, false},
	{"parent that is gone", meta.Unreachable, func(p *patient) {
		away := key(0, meta.Ino(1<<40))[1:]
		p.damage(kv.Txn{Puts: []kv.Put{p.edit(key('I', p.sub), atParent, away...)}})
	}, false},
	{"entry of another type", meta.EntryType, func(p *patient) {
		p.damage(kv.Txn{Puts: []kv.Put{p.edit(key('D', p.dir, "file"), atType, byte(meta.Fifo)),
			p.edit(key('C', p.dir, p.file.Ino), atType, byte(meta.Fifo))}})
	}, false},
	{"cookie gone", meta.EntryUnlisted, func(p *patient) {
		p.damage(kv.Txn{Deletes: [][]byte{key('C', p.dir, p.file.Ino)}})
	}, false},
	{"cookie of no entry", meta.CookieStray, func(p *patient) {
		p.damage(kv.Txn{Puts: []kv.Put{{Key: key('C', p.dir, meta.Ino(9999)),
			Value: p.get(key('C', p.dir, p.file.Ino))}}})
	}, false},
	{"orphan kept", meta.OrphanKept, func(p *patient) {
		c := meta.Caller{Session: p.session}
		h, err := p.store.Open(p.t.Context(), c, p.file.Ino, meta.OpenRead)
		p.must(err)
		p.must(metatest.Failed(p.store.Remove(p.t.Context(), c, p.dir, "file", false)))
		inode := p.get(key('I', p.file.Ino))
		p.must(p.store.Close(p.t.Context(), c, meta.Closing{Handle: h.ID}))
		p.drained()
		p.damage(kv.Txn{Puts: []kv.Put{{Key: key('I', p.file.Ino), Value: inode},
			{Key: key('U', p.file.Ino), Value: []byte{1}}},
			Adds: []kv.Add{{Key: []byte("Afiles"), Delta: 1}}})
	}, false},
	{"orphan that nobody lists", meta.OrphanKept, func(p *patient) {
		ino := p.mk(p.dir, "x", meta.Fifo)
		p.damage(kv.Txn{Deletes: [][]byte{key('D', p.dir, "x"), key('C', p.dir, ino)},
			Puts: []kv.Put{p.edit(key('I', ino), atNlink, 0, 0, 0, 0)},
			Adds: []kv.Add{{Key: key('N', p.dir), Delta: -1}}})
	}, false},
	{"orphan with a name", meta.RecordStray, func(p *patient) {
		p.damage(kv.Txn{Puts: []kv.Put{{Key: key('U', p.file.Ino), Value: []byte{1}}}})
	}, false},
	{"tree of nothing", meta.RecordStray, func(p *patient) {
		p.damage(kv.Txn{Puts: []kv.Put{{Key: key('Z', meta.Ino(12345)), Value: []byte{1}}}})
	}, false},
	{"attributes of nothing", meta.RecordStray, func(p *patient) {
		p.damage(kv.Txn{Puts: []kv.Put{{Key: key('X', meta.Ino(12345), "user.x"), Value: []byte{1}}}})
	}, false},
	{"counter of nothing", meta.RecordStray, func(p *patient) {
		p.damage(kv.Txn{Adds: []kv.Add{{Key: key('N', meta.Ino(12345)), Delta: 1}}})
	}, false},
	{"attribute counter", meta.XattrCount, func(p *patient) {
		p.damage(kv.Txn{Adds: []kv.Add{{Key: key('Y', p.file.Ino), Delta: 5}}})
	}, false},
	{"attribute counter without attributes", meta.XattrCount, func(p *patient) {
		p.damage(kv.Txn{Adds: []kv.Add{{Key: key('Y', p.sub), Delta: 5}}})
	}, false},
	{"number of files", meta.FileCount, func(p *patient) {
		p.damage(kv.Txn{Adds: []kv.Add{{Key: []byte("Afiles"), Delta: 2}}})
	}, false},
	{"unreadable inode", meta.Unreadable, func(p *patient) {
		ino := p.mk(p.dir, "bad", meta.Fifo)
		p.damage(kv.Txn{Puts: []kv.Put{{Key: key('I', ino), Value: []byte{1, 2, 3}}}})
	}, true},
	{"unreadable pool", meta.Unreadable, func(p *patient) {
		p.damage(kv.Txn{Puts: []kv.Put{{Key: []byte("Wpool"), Value: []byte{1, 2, 3}}}})
	}, true},
	{"volume of nothing", meta.EntryDangling, func(p *patient) {
		c := meta.Caller{Session: p.session}
		v, err := p.store.CreateVolume(p.t.Context(), c, "v", 1<<20, meta.NewFile{})
		p.must(err)
		p.damage(kv.Txn{Deletes: [][]byte{key('I', v.Ino)},
			Adds: []kv.Add{{Key: []byte("Afiles"), Delta: -1}}})
	}, false},
	{"data gone", meta.ObjectsMissing, func(p *patient) {
		p.have.set(meta.ObjectRef{Ino: p.file.Ino, Gen: p.file.Gen}, 0)
	}, true},
	{"data short", meta.ObjectsMissing, func(p *patient) {
		p.have.set(meta.ObjectRef{Ino: p.file.Ino, Gen: p.file.Gen}, 50)
	}, true},
	{"size lost", meta.ObjectsLong, func(p *patient) {
		p.damage(kv.Txn{Puts: []kv.Put{p.edit(key('I', p.file.Ino), atSize, make([]byte, 8)...)}})
	}, false},
	{"object of nothing", meta.ObjectUnnamed, func(p *patient) {
		gone := p.write(p.dir, "gone", 10)
		p.must(metatest.Failed(p.store.Remove(p.t.Context(), meta.Caller{}, p.dir, "gone", false)))
		p.drained()
		p.have.set(meta.ObjectRef{Ino: gone.Ino, Gen: gone.Gen}, 10)
	}, false},
}

// drained waits until the deletion queue is empty.
func (p *patient) drained() {
	p.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		st, err := p.store.Status()
		p.must(err)
		if st.Queued == 0 && st.Trees == 0 {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("%d removals are left", st.Queued)
		}
	}
}

// TestCheckFindsAndRepairs does damage of every kind to a healthy store: it is found, without a
// repair nothing changes, with it the damage is repaired, and nothing is found afterwards.
func TestCheckFindsAndRepairs(t *testing.T) {
	for _, ill := range ills {
		t.Run(ill.name, func(t *testing.T) {
			p := newPatient(t)
			if all := p.check(false); len(all) > 0 {
				t.Fatalf("a healthy store has %+v", all)
			}
			ill.do(p)
			has := func(all []meta.Finding, state meta.FindingState) bool {
				return slices.ContainsFunc(all, func(f meta.Finding) bool {
					return f.Kind == ill.kind && f.State == state && f.Text != ""
				})
			}
			for range 2 { // the first one has changed nothing
				if all := p.check(false); !has(all, meta.Reported) {
					t.Fatalf("not found: %+v", all)
				}
			}
			want := meta.Repaired
			if ill.left {
				want = meta.Left
			}
			all := p.check(true)
			if !has(all, want) {
				t.Fatalf("repair: %+v", all)
			}
			t.Log(all)
			all = p.check(false)
			if ill.left {
				if !has(all, meta.Reported) {
					t.Fatalf("what cannot be repaired is gone: %+v", all)
				}
				return
			}
			p.drained()
			if all = p.check(false); len(all) > 0 {
				t.Fatalf("after the repair: %+v", all)
			}
			verify(t, p.store)
		})
	}
}

// TestCheckOfABusyStore: nothing is found while clients work, with a step for every few records.
func TestCheckOfABusyStore(t *testing.T) {
	p := newPatient(t)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for w := range 4 {
		top := p.mk(meta.RootIno, fmt.Sprint("w", w), meta.Directory)
		other := p.mk(meta.RootIno, fmt.Sprint("o", w), meta.Directory)
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(w)))
			for ctx.Err() == nil {
				p.disturb(rng, top, other)
			}
		})
	}
	for range 4 {
		if all := p.check(true); len(all) > 0 {
			t.Errorf("found: %+v", all)
		}
	}
	stop()
	wg.Wait()
	p.drained()
	if all := p.check(false); len(all) > 0 {
		t.Errorf("found: %+v", all)
	}
	verify(t, p.store)
}

// disturb does one operation; most of them may fail.
func (p *patient) disturb(rng *rand.Rand, top, other meta.Ino) {
	ctx, c := p.t.Context(), meta.Caller{Session: p.session}
	a, b := fmt.Sprint(rng.IntN(6)), fmt.Sprint(rng.IntN(6))
	switch rng.IntN(11) {
	case 0:
		_, _ = p.store.Make(ctx, c, top, a, meta.NewFile{Type: meta.Directory, Mode: 0o755})
	case 1:
		if x, err := p.store.Lookup(ctx, c, top, a); err == nil && x.Type == meta.Directory {
			for i := range 30 {
				_, _ = p.store.Make(ctx, c, x.Ino, fmt.Sprint("f", i), meta.NewFile{Type: meta.Regular})
			}
		}
	case 2:
		_ = p.store.RemoveTree(ctx, c, top, a)
	case 3:
		_ = metatest.Failed(p.store.Rename(ctx, c, top, a, other, b, 0))
	case 4:
		_ = metatest.Failed(p.store.Rename(ctx, c, other, a, top, b, 0))
	case 5:
		h, err := p.store.Create(ctx, c, top, a, meta.NewFile{}, meta.OpenWrite)
		if err == nil {
			p.have.set(meta.ObjectRef{Ino: h.Attr.Ino, Gen: h.Attr.Gen}, h.Attr.Size+10)
			_ = metatest.Failed(p.store.Remove(ctx, c, top, a, false))
			_ = p.store.Close(ctx, c, wrote(h.ID, h.Attr.Size+10, h.Attr.TruncSeq, 1))
		}
	case 6:
		if x, err := p.store.Lookup(ctx, c, top, a); err == nil {
			_, _ = p.store.Link(ctx, c, x.Ino, other, b)
			_ = p.store.SetXattr(ctx, c, x.Ino, "user."+b, []byte(b), false, false)
		}
	case 7:
		_ = metatest.Failed(p.store.Rename(ctx, c, top, a, other, b, meta.RenameExchange))
	case 8:
		_ = p.store.RemoveTree(ctx, c, other, a)
	case 9:
		if x, err := p.store.Lookup(ctx, c, top, a); err == nil {
			_, _ = p.store.SetQuota(ctx, c, x.Ino, meta.Usage{Inodes: 20})
		}
	case 10:
		if x, err := p.store.Lookup(ctx, c, top, a); err == nil {
			_ = p.store.RemoveQuota(ctx, c, x.Ino)
		}
	}
}

// TestCheckSteps: the latest step can be repeated, a run that is not known and a second one are
// refused, and so is whoever does not own the root.
func TestCheckSteps(t *testing.T) {
	p := newPatient(t)
	p.damage(kv.Txn{Adds: []kv.Add{{Key: key('N', p.dir), Delta: 3}}})
	step := func(run, n uint64, uid uint32) (meta.CheckPage, error) {
		return p.store.Check(t.Context(), meta.Caller{Cred: meta.Cred{UID: uid}},
			meta.CheckStep{Run: run, Step: n, Max: 4})
	}
	refused := func(kind errs.Kind, run, n uint64, uid uint32) {
		t.Helper()
		if _, err := step(run, n, uid); errs.KindOf(err) != kind {
			t.Fatalf("%v, want %v", err, kind)
		}
	}
	refused(errs.Perm, 1, 0, 1000)
	refused(errs.Stale, 1, 1, 0)
	refused(errs.Invalid, 0, 0, 0)
	found := 0
	for n := uint64(0); ; n++ {
		first, err := step(1, n, 0)
		p.must(err)
		again, err := step(1, n, 0)
		p.must(err)
		if fmt.Sprint(first) != fmt.Sprint(again) {
			t.Fatalf("step %d: %+v, repeated %+v", n, first, again)
		}
		found += len(first.Findings)
		if first.End {
			break
		}
		refused(errs.Busy, 2, 0, 0)
		refused(errs.Invalid, 1, n+2, 0)
	}
	if found != 1 {
		t.Fatalf("%d findings", found)
	}
	_, err := step(2, 0, 0)
	p.must(err)
	_, err = p.store.Dump(t.Context(), meta.Caller{Cred: meta.Cred{UID: 1000}}, 1, nil)
	if errs.KindOf(err) != errs.Perm {
		t.Fatalf("a dump for everybody: %v", err)
	}
}
