package server

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/guard"
)

// world is a model of what there is: it is read anew from the store, by names from the root, after
// each step, and knows nothing of how a guard finds out.
type world struct {
	inside  map[meta.Ino]bool     // has a name in /proj, or is it; or the client has it open
	outside map[string]string     // paths elsewhere, and what is there
	at      map[string]meta.Ino   // inodes of those paths
	all     map[meta.Ino]struct{} // everything that has a name
}

// read reads the store.
func (r *rights) read() *world {
	w := &world{inside: map[meta.Ino]bool{r.top: true}, outside: map[string]string{},
		at: map[string]meta.Ino{}, all: map[meta.Ino]struct{}{}}
	told := map[string]string{}
	var walk func(dir meta.Ino, at string)
	walk = func(dir meta.Ino, at string) {
		list, err := r.store.ReadDir(r.Context(), admin, dir, 0, meta.DirPageMax, true)
		r.must(err)
		for _, e := range list {
			name := path.Join(at, e.Name)
			w.all[e.Ino] = struct{}{}
			if strings.HasPrefix(name, "/proj/") {
				w.inside[e.Ino] = true
			} else if name != "/proj" {
				a := *e.Attr
				a.Lease, a.Serial = 0, 0
				attrs, err := r.store.ListXattr(r.Context(), admin, e.Ino)
				r.must(err)
				told[name], w.at[name] = fmt.Sprintf("%+v %v", a, attrs), e.Ino
			}
			if e.Type == meta.Directory {
				walk(e.Ino, name)
			}
		}
	}
	walk(meta.RootIno, "/")
	for name, ino := range w.at {
		if r.open(ino) {
			w.inside[ino] = true
		}
		w.outside[name] = told[name]
	}
	return w
}

// changed finds a path elsewhere where something is different. Of files that have names inside too,
// or that the client has or had open, only the names elsewhere count: it may change these files.
func (w *world) changed(after *world) string {
	for name := range maps.Keys(after.outside) {
		if _, there := w.outside[name]; !there {
			return name
		}
	}
	for name, text := range w.outside {
		ino := w.at[name]
		own := w.inside[ino] || after.inside[ino]
		if ino != after.at[name] || !own && text != after.outside[name] {
			return name + ": " + text + " is now " + after.outside[name]
		}
	}
	return ""
}

// open tells whether the client has something open: then it is its own wherever it is moved.
func (r *rights) open(ino meta.Ino) bool {
	_, open := r.store.Opener(ino, guard.Prefix(ana.Name))
	return open
}

// mine tells whether an inode is the volume that the client may use.
func (r *rights) mine(ino meta.Ino) bool {
	page, err := r.store.ListVolumes(r.Context(), admin, "mine", 1)
	r.must(err)
	return len(page) == 1 && page[0].Name == "mine" && page[0].Ino == ino
}

// inos are all inodes that an answer names.
func inos(out *meta.Result) (list []meta.Ino) {
	for _, entries := range [][]meta.Entry{out.Entries, out.Scanned.Entries} {
		for i := range entries {
			list = append(list, entries[i].Ino)
		}
	}
	for _, a := range attrs(out) {
		if list = append(list, a.Ino); a.Type == meta.Directory {
			list = append(list, a.Parent)
		}
	}
	list = append(list, out.Volume.Ino, out.Quota.Dir, out.Lock.Ino)
	for _, l := range out.Locks {
		list = append(list, l.Ino)
	}
	return list
}

// attrs are all attributes in an answer.
func attrs(out *meta.Result) []*meta.Attr {
	list := []*meta.Attr{&out.Attr, &out.Handle.Attr, &out.Found.Dir, &out.Found.Attr,
		&out.Scanned.Dir}
	for _, entries := range [][]meta.Entry{out.Entries, out.Scanned.Entries} {
		for i := range entries {
			if entries[i].Attr != nil {
				list = append(list, entries[i].Attr)
			}
		}
	}
	for i := range out.Handles {
		list = append(list, &out.Handles[i].Attr)
	}
	return list
}

// ownRoot demands that what a client is told of its root is told of /proj.
func (r *rights) ownRoot(op meta.Op, out *meta.Result) {
	r.Helper()
	top, err := r.store.GetAttr(r.Context(), admin, r.top)
	r.must(err)
	for _, a := range attrs(out) {
		if a.Ino == meta.RootIno && a.Btime != top.Btime {
			r.Fatalf("%v tells of the root of the cluster", op)
		}
	}
}

// stray makes arguments at random, of inodes that exist, or existed, or never did.
func (r *rights) stray(rng *rand.Rand, pool []meta.Ino) meta.Args {
	ino := func() meta.Ino {
		if rng.IntN(20) == 0 {
			return meta.Ino(rng.Uint64N(200))
		}
		return pool[rng.IntN(len(pool))]
	}
	name := func() string {
		return []string{"a", "b", "c", "d", "in", "out", "..", ".", "proj", "other", "mine", "theirs",
			"user.x"}[rng.IntN(13)]
	}
	session := r.session
	if rng.IntN(10) == 0 {
		session = []uint64{0, r.foreign, rng.Uint64()}[rng.IntN(3)]
	}
	a := meta.Args{Ino: ino(), Dir: ino(), NewDir: ino(), Name: name(), NewName: name(),
		Caller: meta.Caller{Session: session, Cred: meta.Cred{UID: uint32(rng.IntN(2) * 1000)}},
		Open:   meta.OpenFlags(1 + rng.IntN(7)), Max: uint32(1 + rng.IntN(50)), Size: rng.Int64N(100),
		IsDir: rng.IntN(2) == 0, Mask: meta.SetMask(1 << rng.IntN(8)), Session: session,
		Attr:   meta.Attr{Mode: uint32(rng.IntN(0o1000)), Size: rng.Int64N(50)},
		Handle: rng.Uint64N(10), Handles: []uint64{rng.Uint64N(10)}, Value: []byte("v"),
		Change: meta.Change{Ino: ino(), Size: 5}, WithAttr: true, Life: 1, Client: "two",
		File: meta.NewFile{Type: meta.Type(1 + rng.IntN(4)), Mode: 0o755, Target: "../../other/out",
			Checked: true},
		Rename: meta.RenameFlags(rng.IntN(3)), Scan: meta.Scan{Max: 50, Attrs: true, Bytes: 1000},
		Mode: meta.LockTry, Listen: meta.Listening{Session: session},
		Lock: meta.Lock{Ino: ino(), Kind: meta.LockFlock, Type: meta.LockShared,
			End: meta.LockEndMax},
		Claims: []meta.Claimed{{Handle: 1 + rng.Uint64N(9), Ino: ino(),
			Flags: meta.OpenFlags(1 + rng.IntN(3))}},
		Accesses: []meta.Access{{Ino: ino(), At: meta.Time{Sec: 1 << 40}}}}
	a.Closing = meta.Closing{Handle: a.Handle, Dirty: true, Change: a.Change}
	a.Closings = []meta.Closing{a.Closing}
	a.Locks = []meta.Lock{a.Lock}
	a.Caller.ReqID[0], a.Caller.ReqID[1] = byte(rng.IntN(256)), byte(rng.IntN(256))
	done := meta.Deferred{Kind: meta.DeferredKind(1 + rng.IntN(3)), Dir: a.Dir, Name: a.Name,
		Ino: a.Ino, File: meta.NewFile{Type: a.File.Type, Mode: 0o755, Target: "out"}}
	a.Deferred = []meta.Deferred{done, done}
	a.Deferred[1].Name = name()
	a.Change.Mtime = meta.Time{Sec: 5}
	return a
}

// shuffle lets the owner of everything move things about, across the border as well.
func (r *rights) shuffle(rng *rand.Rand, dirs []meta.Ino, grows bool) {
	dir, to := dirs[rng.IntN(len(dirs))], dirs[rng.IntN(len(dirs))]
	names := []string{"a", "b", "c", "d", "in", "out"}
	name, other := names[rng.IntN(len(names))], names[rng.IntN(len(names))]
	ctx := r.Context() // what cannot be done is not
	what := rng.IntN(5)
	if !grows {
		what = 4
	}
	switch what {
	case 0:
		_, _ = r.store.Rename(ctx, admin, dir, name, to, other, 0)
	case 1:
		if a, err := r.store.Lookup(ctx, admin, dir, name); err == nil {
			_, _ = r.store.Link(ctx, admin, a.Ino, to, other)
		}
	case 2:
		_, _ = r.store.Make(ctx, admin, dir, name, meta.NewFile{Type: meta.Directory, Mode: 0o777})
	case 3:
		_, _ = r.store.Make(ctx, admin, dir, name, meta.NewFile{Type: meta.Regular, Mode: 0o666})
	case 4:
		_, _ = r.store.Remove(ctx, admin, dir, name, rng.IntN(2) == 0)
	}
}

// TestRandomStaysInside: a client that asks for anything at random sees and changes nothing
// elsewhere, whatever is moved about meanwhile.
func TestRandomStaysInside(t *testing.T) {
	for _, what := range []identity.Rights{
		{Path: "/proj", Squash: identity.SquashNone, Volumes: []string{"mine"}},
		{Path: "/proj", Squash: identity.SquashRoot},
		{Path: "/proj", Squash: identity.SquashNone, ReadOnly: true},
	} {
		t.Run(fmt.Sprintf("%v ro %v", what.Squash, what.ReadOnly), func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			steps := 1000
			if testing.Short() {
				steps = 300
			}
			randomInside(t, what, rand.New(rand.NewPCG(seed, 4)), steps)
		})
	}
}

func randomInside(t *testing.T, what identity.Rights, rng *rand.Rand, steps int) {
	r := newRights(t, what)
	done, refused := 0, 0
	for step := range steps {
		before := r.read()
		known := slices.Sorted(maps.Keys(before.all))
		if rng.IntN(4) == 0 {
			r.shuffle(rng, append(known, meta.RootIno), len(known) < 40)
			continue
		}
		op := meta.Op(rng.IntN(int(meta.OpEnd)))
		if !op.Valid() || op == meta.OpNewSession || op == meta.OpEndSession || op == meta.OpAppended {
			continue
		}
		stored := r.records()
		a := r.stray(rng, append(known, r.volume, meta.RootIno))
		out, err := r.ask(ana, op, a)
		after := r.read()
		if what := before.changed(after); what != "" {
			t.Fatalf("step %d: %v of %+v has changed what is outside: %s", step, op, a, what)
		}
		if what.ReadOnly && op != meta.OpSucceed && r.records() != stored {
			t.Fatalf("step %d: %v of %+v has changed something", step, op, a)
		}
		if err != nil {
			refused++
			continue
		}
		done++
		r.ownRoot(op, &out)
		for _, ino := range inos(&out) {
			may := ino == 0 || ino == meta.RootIno || before.inside[ino] || after.inside[ino] ||
				r.open(ino) || what.Volume("mine") && r.mine(ino) ||
				op == meta.OpClaimLocks || op == meta.OpHeldLocks // what it has said itself
			if !may {
				t.Fatalf("step %d: %v of %+v tells of inode %d, which is not inside", step, op, a, ino)
			}
		}
	}
	if done < steps/20 || refused < steps/20 {
		t.Fatalf("%d were done and %d refused: that shows nothing", done, refused)
	}
	err := r.store.Verify(t.Context(), func(problem string) { t.Error(problem) })
	if err != nil {
		t.Error(err)
	}
}
