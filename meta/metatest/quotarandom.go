package metatest

import (
	"math/rand/v2"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// testQuotaRandom does random operations on files, and sets and removes quotas meanwhile: counters
// are what a walk through the tree finds, limits are kept, and restarts change nothing.
func testQuotaRandom(e *env) {
	seed := uint64(time.Now().UnixNano())
	e.Logf("seed %d", seed)
	r := &quotaRun{env: e, rng: rand.New(rand.NewPCG(seed, 5)), linked: map[meta.Ino]bool{}}
	r.dirs = []meta.Ino{e.mkdir(meta.RootIno, "run")}
	for i := range 4 {
		r.dirs = append(r.dirs, e.mkdir(r.dirs[r.rng.IntN(len(r.dirs))], string(rune('a'+i))+"dir"))
	}
	for step := range 400 {
		r.step()
		if step%40 == 39 {
			r.check()
		}
		if step%130 == 129 {
			e.restart()
		}
	}
	r.check()
}

type quotaRun struct {
	*env
	rng    *rand.Rand
	dirs   []meta.Ino        // all that ever were
	linked map[meta.Ino]bool // had two names once: it may count in a tree where it has none
}

func (r *quotaRun) name() string  { return string(rune('a' + r.rng.IntN(6))) }
func (r *quotaRun) dir() meta.Ino { return r.dirs[r.rng.IntN(len(r.dirs))] }

// step does one thing. It may well be refused: the names and directories are random.
func (r *quotaRun) step() {
	c, dir, to, name, other := r.root(), r.dir(), r.dir(), r.name(), r.name()
	switch r.rng.IntN(12) {
	case 0, 1:
		r.fine(r.tryMake(dir, name, meta.Regular))
	case 2:
		a, err := r.Service.Make(r.ctx, c, dir, name+"dir", meta.NewFile{Type: meta.Directory})
		if r.fine(err) {
			r.dirs = append(r.dirs, a.Ino)
		}
	case 3:
		if a, err := r.lookup(dir, name); r.fine(err) && a.Type == meta.Regular {
			_, err := r.Service.Link(r.ctx, c, a.Ino, to, other)
			r.linked[a.Ino] = r.linked[a.Ino] || r.fine(err)
		}
	case 4:
		r.fine(r.remove(dir, name))
	case 5:
		r.fine(r.rmdir(dir, name+"dir"))
	case 6, 7:
		flags := []meta.RenameFlags{0, 0, meta.RenameExchange}[r.rng.IntN(3)]
		if r.rng.IntN(3) == 0 {
			name, other = name+"dir", other+"dir"
		}
		r.fine(r.rename(dir, name, to, other, flags))
	case 8:
		if a, err := r.lookup(dir, name); r.fine(err) && a.Type == meta.Regular {
			r.fine(r.setSize(a.Ino, r.rng.Int64N(1000)))
		}
	case 9:
		r.write(dir, name)
	case 10:
		limit := meta.Usage{Bytes: r.rng.Int64N(3) * 3000, Inodes: r.rng.Int64N(3) * 8}
		_, err := r.Service.SetQuota(r.ctx, c, dir, limit)
		r.fine(err)
	case 11:
		if r.rng.IntN(3) == 0 {
			r.fine(r.Service.RemoveQuota(r.ctx, c, dir))
		}
	}
}

// fine tells whether something was done; what cannot be refused fails the test.
func (r *quotaRun) fine(err error) bool {
	r.Helper()
	switch errs.KindOf(err) {
	case errs.OK:
		return true
	case errs.NotFound, errs.Exists, errs.NotEmpty, errs.IsDir, errs.NotDir, errs.Invalid,
		errs.Quota, errs.CrossDevice, errs.NoData:
		return false
	}
	r.Fatal(err)
	return false
}

// write makes or opens a file, writes some of it as far as it may, and closes it; sometimes it is
// removed meanwhile.
func (r *quotaRun) write(dir meta.Ino, name string) {
	h, err := r.create(dir, name, meta.OpenWrite)
	if !r.fine(err) {
		return
	}
	end := r.rng.Int64N(2000)
	if h.Bounded && end > h.GrowTo {
		to, err := r.Service.Grow(r.ctx, r.root(), h.Attr.Ino, end)
		if !r.fine(err) {
			to = h.GrowTo
		}
		end = min(end, to)
	}
	if r.rng.IntN(4) == 0 {
		r.fine(r.remove(dir, name))
	}
	r.objects.Write(h.Attr.Ino, end)
	if r.rng.IntN(2) == 0 {
		_, err := r.Service.Commit(r.ctx, r.root(), told(h.Attr.Ino, end, h.Attr.TruncSeq, 1), false)
		r.must(err)
	}
	r.must(r.Service.Close(r.ctx, r.root(), wrote(h.ID, end, h.Attr.TruncSeq, 1)))
}

// check compares all quotas with what is below their directories.
func (r *quotaRun) check() {
	r.Helper()
	all, err := r.Service.ListQuotas(r.ctx, r.root(), 0, meta.QuotaPageMax)
	r.must(err)
	for _, q := range all {
		q = r.counted(q.Dir)
		sure, perhaps := meta.Usage{Inodes: 1}, meta.Usage{}
		r.walk(q.Dir, map[meta.Ino]bool{}, &sure, &perhaps)
		if extra := q.Used.Inodes - sure.Inodes; extra < 0 ||
			extra > int64(len(r.linked)) || len(r.linked) == 0 && q.Used != sure {
			r.Fatalf("%+v, and the tree holds %+v and perhaps %+v", q, sure, perhaps)
		}
		if extra := q.Used.Bytes - sure.Bytes; extra < 0 || extra > 0 && len(r.linked) == 0 {
			r.Fatalf("%+v, and the tree holds %+v and perhaps %+v", q, sure, perhaps)
		}
	}
	if r.Verify != nil { // exact, by what every inode says
		r.Verify(r)
	}
}

// walk adds up a tree.
func (r *quotaRun) walk(dir meta.Ino, seen map[meta.Ino]bool, sure, perhaps *meta.Usage) {
	for _, x := range r.list(dir, 100) {
		if seen[x.Ino] {
			continue
		}
		seen[x.Ino] = true
		u := sure
		if r.linked[x.Ino] {
			u = perhaps
		}
		u.Inodes++
		if x.Type == meta.Directory {
			r.walk(x.Ino, seen, sure, perhaps)
			continue
		}
		u.Bytes += r.attr(x.Ino).Size
	}
}
