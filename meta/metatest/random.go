package metatest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

const (
	randomSeeds = 3
	randomSteps = 500
)

// testRandom does random operations on the service and on the model, and compares every answer,
// and now and then the whole tree. Some operations are repeated under the same id, as after a
// lost answer; the service is restarted several times.
func testRandom(e *env) {
	first := uint64(time.Now().UnixNano())
	for i := range uint64(randomSeeds) {
		seed := first + i
		e.Logf("seed %d", seed)
		r := &random{env: e, rng: rand.New(rand.NewPCG(seed, 1)), model: newModel(), seed: seed}
		r.run(fmt.Sprint("run", i))
	}
}

// random is one run.
type random struct {
	*env
	rng   *rand.Rand
	model *model
	seed  uint64
	step  int
	ids   uint64
	nodes []*node // all that ever were
	open  []openFile
}

type openFile struct {
	id     uint64
	n      *node
	c      meta.Caller
	writes bool
}

func (r *random) run(top string) {
	// Each run has a directory of its own, open for all.
	ino := r.mkdir(meta.RootIno, top)
	_, err := r.Service.SetAttr(r.ctx, r.root(), ino, meta.SetMode, meta.Attr{Mode: 0o777})
	r.must(err)
	r.model.root.ino, r.model.root.mode = ino, 0o777
	r.nodes = []*node{r.model.root}
	for r.step = range randomSteps {
		if r.step%150 == 149 {
			r.restart(r.held()...)
		}
		if r.step%100 == 99 {
			r.compare(r.model.root)
		}
		r.one()
	}
	for len(r.open) > 0 {
		r.closeOne()
	}
	r.compare(r.model.root)
}

// held is what is open.
func (r *random) held() (list []meta.Claimed) {
	for _, f := range r.open {
		flags := meta.OpenRead
		if f.writes {
			flags |= meta.OpenWrite
		}
		list = append(list, meta.Claimed{Handle: f.id, Ino: f.n.ino, Flags: flags, UID: f.c.Cred.UID})
	}
	return list
}

func (r *random) caller() meta.Caller {
	switch r.rng.IntN(4) {
	case 0:
		return r.user(alice, staff)
	case 1:
		return r.user(bob)
	}
	return r.root()
}

func (r *random) node() *node  { return r.nodes[r.rng.IntN(len(r.nodes))] }
func (r *random) name() string { return string(rune('a' + r.rng.IntN(6))) }
func (r *random) mode() uint32 {
	return []uint32{0o777, 0o755, 0o1777, 0o2775, 0o700, 0o511}[r.rng.IntN(6)]
}
func (r *random) file() meta.Type {
	return []meta.Type{meta.Regular, meta.Fifo, meta.Symlink}[r.rng.IntN(3)]
}

// dir prefers directories, so that most operations get somewhere.
func (r *random) dir() *node {
	for range 8 {
		if n := r.node(); n.isDir() && !n.dead() {
			return n
		}
	}
	return r.node()
}

// agree compares an answer with the model's.
func (r *random) agree(what string, err error, want errs.Kind) {
	r.Helper()
	if errs.KindOf(err) != want {
		r.Fatalf("seed %d step %d: %s: got %v, the model says %q", r.seed, r.step, what, err, want)
	}
}

// do runs an operation under an id of its own, now and then twice.
func (r *random) do(c meta.Caller, op func(c meta.Caller) error) error {
	r.ids++
	c = withID(c, r.seed<<20+r.ids)
	err := op(c)
	if r.rng.IntN(4) == 0 {
		if again := op(c); errs.KindOf(again) != errs.KindOf(err) {
			r.Fatalf("seed %d step %d: answered %v, repeated: %v", r.seed, r.step, err, again)
		}
	}
	return err
}

func (r *random) one() {
	c := r.caller()
	switch k := r.rng.IntN(20); {
	case k < 3:
		r.make(c, meta.Directory)
	case k < 6:
		r.make(c, r.file())
	case k < 7:
		n, dir, name := r.node(), r.dir(), r.name()
		err := r.do(c, func(c meta.Caller) error {
			_, err := r.Service.Link(r.ctx, c, n.ino, dir.ino, name)
			return err
		})
		r.agree("link", err, r.model.link(c.Cred, n, dir, name))
	case k < 10:
		dir, name, isDir := r.dir(), r.name(), r.rng.IntN(2) == 0
		err := r.do(c, func(c meta.Caller) error {
			return Failed(r.Service.Remove(r.ctx, c, dir.ino, name, isDir))
		})
		r.agree("remove", err, r.model.remove(c.Cred, dir, name, isDir))
	case k < 14:
		r.move(c)
	case k < 15:
		n, mode := r.node(), r.mode()
		err := r.do(c, func(c meta.Caller) error {
			_, err := r.Service.SetAttr(r.ctx, c, n.ino, meta.SetMode, meta.Attr{Mode: mode})
			return err
		})
		r.agree("chmod", err, r.model.chmod(c.Cred, n, mode))
	case k < 16:
		r.cut(c)
	case k < 18:
		r.openOne(c)
	default:
		r.closeOne()
	}
}

func (r *random) make(c meta.Caller, typ meta.Type) {
	dir, name, mode := r.dir(), r.name(), r.mode()&0o777
	f := meta.NewFile{Type: typ, Mode: mode}
	if typ == meta.Symlink {
		f.Target, mode = "target", 0o777
	}
	var a meta.Attr
	err := r.do(c, func(c meta.Caller) (err error) {
		a, err = r.Service.Make(r.ctx, c, dir.ino, name, f)
		return err
	})
	n, want := r.model.make(c.Cred, dir, name, typ, mode)
	r.agree("make", err, want)
	if n != nil {
		n.ino = a.Ino
		if typ == meta.Symlink {
			n.size = int64(len(f.Target))
		}
		r.nodes = append(r.nodes, n)
	}
}

func (r *random) move(c meta.Caller) {
	from, name, to, newName := r.dir(), r.name(), r.dir(), r.name()
	flags := []meta.RenameFlags{0, 0, meta.RenameNoReplace, meta.RenameExchange}[r.rng.IntN(4)]
	err := r.do(c, func(c meta.Caller) error {
		return Failed(r.Service.Rename(r.ctx, c, from.ino, name, to.ino, newName, flags))
	})
	r.agree(fmt.Sprintf("rename %d/%s to %d/%s flags %d", from.ino, name, to.ino, newName, flags),
		err, r.model.rename(c.Cred, from, name, to, newName, flags))
}

func (r *random) cut(c meta.Caller) {
	n, size := r.node(), r.rng.Int64N(1000)
	for _, f := range r.open { // who has it open may truncate it: not the model's business
		if f.n == n && f.c.Cred.UID == c.Cred.UID && f.writes {
			return
		}
	}
	err := r.do(c, func(c meta.Caller) error {
		_, err := r.Service.SetAttr(r.ctx, c, n.ino, meta.SetSize, meta.Attr{Size: size})
		return err
	})
	r.agree("truncate", err, r.model.truncate(c.Cred, n, size))
}

func (r *random) openOne(c meta.Caller) {
	n := r.node()
	flags, want := meta.OpenRead, uint32(4)
	if r.rng.IntN(2) == 0 {
		flags, want = readWrite, 6
	}
	var h meta.Handle
	err := r.do(c, func(c meta.Caller) (err error) {
		h, err = r.Service.Open(r.ctx, c, n.ino, flags)
		return err
	})
	kind := r.model.open(c.Cred, n, want)
	r.agree("open", err, kind)
	if kind == errs.OK {
		r.open = append(r.open, openFile{id: h.ID, n: n, c: c, writes: flags&meta.OpenWrite != 0})
	}
}

// closeOne closes a file; one that was open for writing has grown.
func (r *random) closeOne() {
	if len(r.open) == 0 {
		return
	}
	i := r.rng.IntN(len(r.open))
	f := r.open[i]
	r.open = append(r.open[:i], r.open[i+1:]...)
	a, err := r.Service.GetAttr(r.ctx, f.c, f.n.ino)
	r.agree("stat of an open file", err, errs.OK)
	if a.Size != f.n.size || a.Nlink != uint32(f.n.nlink) {
		r.Fatalf("seed %d step %d: open file has %d bytes and %d links, the model says %d and %d",
			r.seed, r.step, a.Size, a.Nlink, f.n.size, f.n.nlink)
	}
	size := f.n.size
	if f.writes {
		size += r.rng.Int64N(100)
		r.objects.Write(f.n.ino, size)
	}
	err = r.do(f.c, func(c meta.Caller) error {
		return r.Service.Close(r.ctx, c, meta.Closing{Handle: f.id, Dirty: f.writes,
			Change: meta.Change{Size: size, TruncSeq: a.TruncSeq, Mtime: a.Mtime}})
	})
	r.agree("close", err, errs.OK)
	f.n.opens--
	f.n.size = size
	if f.writes {
		f.n.written(f.c.Cred)
	}
	if f.n.dead() {
		_, err := r.Service.GetAttr(r.ctx, r.root(), f.n.ino)
		r.agree("stat of what is gone", err, errs.NotFound)
	}
}

// compare walks the tree.
func (r *random) compare(dir *node) {
	r.Helper()
	listed := r.list(dir.ino, 7)
	if len(listed) != len(dir.entries) {
		r.Fatalf("seed %d step %d: %d entries in directory %d, the model has %d",
			r.seed, r.step, len(listed), dir.ino, len(dir.entries))
	}
	for _, x := range listed {
		n := dir.entries[x.Name]
		if n == nil || n.ino != x.Ino || n.typ != x.Type {
			r.Fatalf("seed %d step %d: entry %+v, the model has %+v", r.seed, r.step, x, n)
		}
		a := x.Attr
		if a.Mode != n.mode || a.UID != n.uid || a.GID != n.gid || a.Nlink != n.links() ||
			!n.isDir() && a.Size != n.size || n.isDir() && a.Size != int64(len(n.entries)) {
			r.Fatalf("seed %d step %d: %q is %+v, the model has %+v", r.seed, r.step, x.Name, *a, *n)
		}
		if n.isDir() {
			up, err := r.lookup(n.ino, "..")
			if err != nil || up.Ino != dir.ino {
				r.Fatalf("seed %d step %d: parent of %q is %d %v", r.seed, r.step, x.Name, up.Ino, err)
			}
			r.compare(n)
		}
	}
}
