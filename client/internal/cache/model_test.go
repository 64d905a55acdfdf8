package cache

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// The model: a service with leases as meta.Leases describes them, and clients with caches, in
// simulated time. Requests, answers, recalls and acknowledgements take their time and overtake each
// other. Clients stop listening now and then. Whenever a cache answers, the answer must be what the
// service knows at that moment.

const (
	simLease   = 1000
	simClients = 3
	simNames   = 4
	simDirs    = 5
)

// thing is an inode of the model.
type thing struct {
	attr  meta.Attr
	data  []byte
	names map[string]meta.Ino // of a directory
	gone  bool
}

type event struct {
	at int64
	n  int // events of one moment happen in the order in which they were planned
	do func()
}

type sim struct {
	t      *testing.T
	rng    *rand.Rand
	now    int64
	count  int
	events []event

	inodes  map[meta.Ino]*thing
	dirs    []meta.Ino // all that there ever were
	next    meta.Ino
	serial  uint64
	marked  map[meta.Ino]int
	holders map[meta.Ino]map[int]bool
	owed    map[owed][]func() // who waits for an acknowledgement
	users   []*user
	answers int // that caches gave
}

// owed is a recall that was not acknowledged.
type owed struct {
	user int
	ino  meta.Ino
}

// user is a client.
type user struct {
	id    int
	c     *Cache
	deaf  bool  // it does not listen for a while
	owes  int   // recalls that it has not acknowledged, as the service sees it
	epoch int64 // when the service forgot its leases last
	known int64 // the last one that it has heard of
}

func newSim(t *testing.T, seed uint64) *sim {
	s := &sim{t: t, rng: rand.New(rand.NewPCG(seed, 1)), inodes: map[meta.Ino]*thing{},
		marked: map[meta.Ino]int{}, holders: map[meta.Ino]map[int]bool{},
		owed: map[owed][]func(){}, next: 10}
	s.birth(1, meta.Directory)
	s.birth(2, meta.Directory)
	for i := range simClients {
		u := &user{id: i}
		u.c = New(Options{Now: s.time, Bytes: []int64{1 << 20, 3000, 1 << 20}[i]})
		s.users = append(s.users, u)
	}
	return s
}

// birth makes an inode.
func (s *sim) birth(ino meta.Ino, typ meta.Type) {
	t := &thing{attr: meta.Attr{Ino: ino, Type: typ, Mode: 0o755, Nlink: 1,
		Atime: s.at(), Mtime: s.at(), Ctime: s.at()}}
	if typ == meta.Directory {
		t.attr.Nlink = 2
		t.names = map[string]meta.Ino{}
		s.dirs = append(s.dirs, ino)
	} else {
		t.attr.Small = true
	}
	s.inodes[ino] = t
}

// at is now as the time of a file.
func (s *sim) at() meta.Time { return meta.UnixTime(0, s.now) }

func (s *sim) time() time.Time { return time.Unix(1000, 0).Add(time.Duration(s.now)) }

// in plans something for a moment up to so much later.
func (s *sim) in(most int, do func()) {
	s.count++
	s.events = append(s.events, event{s.now + 1 + s.rng.Int64N(int64(most)), s.count, do})
}

func (s *sim) run(until int64) {
	for len(s.events) > 0 {
		i := 0
		for j := range s.events {
			e, f := s.events[i], s.events[j]
			if cmp.Or(cmp.Compare(f.at, e.at), cmp.Compare(f.n, e.n)) < 0 {
				i = j
			}
		}
		e := s.events[i]
		s.events = slices.Delete(s.events, i, i+1)
		if e.at > until {
			return
		}
		s.now = e.at
		e.do()
		s.check()
	}
}

// grant gives a lease, as the service does before it reads.
func (s *sim) grant(u *user, ino meta.Ino, a *meta.Attr) {
	s.serial++
	a.Serial, a.Lease = s.serial, meta.LeaseNone
	if s.marked[ino] > 0 {
		return
	}
	a.Lease = meta.LeaseRead
	if s.holders[ino] == nil {
		s.holders[ino] = map[int]bool{}
	}
	s.holders[ino][u.id] = true
}

func (s *sim) attr(u *user, ino meta.Ino) meta.Attr {
	a := s.inodes[ino].attr
	s.grant(u, ino, &a)
	return a
}

// renew is Listen without recalls.
func (s *sim) renew(u *user) {
	sent := s.now
	s.in(50, func() {
		extended, epoch := u.owes == 0, u.epoch
		s.in(50, func() {
			if epoch > u.known {
				u.known = epoch
				u.c.Drop()
			}
			if extended && epoch == u.known {
				u.c.Extend(time.Unix(1000, 0).Add(time.Duration(sent + simLease)))
			}
		})
	})
}

// change has an operation of u wait until nobody else has a lease on what it changes, carries it
// out, and answers.
func (s *sim) change(u *user, inos []meta.Ino, commit func(), answer func()) {
	for _, ino := range inos {
		s.marked[ino]++
	}
	waiting := 1
	done := func() {
		if waiting--; waiting > 0 {
			return
		}
		commit()
		for _, ino := range inos {
			s.marked[ino]--
		}
		s.in(60, answer)
	}
	for _, ino := range inos {
		for _, id := range slices.Sorted(maps.Keys(s.holders[ino])) {
			if id != u.id {
				waiting++
				s.recall(s.users[id], ino, done)
			}
		}
	}
	done()
}

// recall asks for a lease back. Who does not answer in time has lost all of them.
func (s *sim) recall(o *user, ino meta.Ino, done func()) {
	key := owed{o.id, ino}
	s.owed[key] = append(s.owed[key], done)
	if len(s.owed[key]) > 1 {
		return // it was asked already
	}
	answered := false
	o.owes++
	end := func() {
		if answered {
			return
		}
		answered = true
		o.owes--
		delete(s.holders[ino], o.id)
		waiters := s.owed[key]
		delete(s.owed, key)
		for _, done := range waiters {
			done()
		}
	}
	var hear func()
	hear = func() {
		if o.deaf {
			s.in(100, hear)
			return
		}
		o.c.Recall(ino)
		s.in(50, end)
	}
	s.in(50, hear)
	late := s.now + simLease + 1
	s.count++
	s.events = append(s.events, event{late, s.count, func() {
		if answered {
			return
		}
		for _, h := range s.holders {
			delete(h, o.id)
		}
		o.epoch = s.now
		end()
	}})
}

func (s *sim) name() string  { return fmt.Sprint("n", s.rng.IntN(simNames)) }
func (s *sim) dir() meta.Ino { return s.dirs[s.rng.IntN(len(s.dirs))] }
func (s *sim) user() *user   { return s.users[s.rng.IntN(simClients)] }

// touch is what a change of its names does to a directory.
func (s *sim) touch(d *thing) {
	d.attr.Mtime, d.attr.Ctime, d.attr.Size = s.at(), s.at(), int64(len(d.names))
	d.attr.Nlink = 2
	for _, ino := range d.names {
		if s.inodes[ino].attr.Type == meta.Directory {
			d.attr.Nlink++
		}
	}
}

func (s *sim) find(u *user) {
	dir, name := s.dir(), s.name()
	t := u.c.Begin()
	s.in(60, func() {
		var f meta.Found
		f.Dir = s.attr(u, dir)
		if ino := s.inodes[dir].names[name]; ino != 0 {
			f.Present, f.Attr, f.Data = true, s.attr(u, ino), s.inodes[ino].data
		}
		s.in(60, func() {
			if u.c.PutFound(t, dir, name, &f) {
				s.list(u, dir, 0)
			}
		})
	})
}

func (s *sim) create(u *user) {
	dir, name := s.dir(), s.name()
	typ := meta.Regular
	if len(s.dirs) < simDirs && s.rng.IntN(2) == 0 {
		typ = meta.Directory
	}
	x := u.c.Change().Name(dir, name)
	s.in(60, func() {
		var a meta.Attr
		s.change(u, []meta.Ino{dir}, func() {
			d := s.inodes[dir]
			if d.gone || d.names[name] != 0 {
				return
			}
			s.next++
			d.names[name] = s.next
			s.birth(s.next, typ)
			s.touch(d)
			a = s.attr(u, s.next)
		}, func() {
			o := Outcome{Failed: a.Ino == 0}
			if a.Ino != 0 {
				o.Attrs, o.Born, o.At = []*meta.Attr{&a}, true, a.Ctime
				o.Names = []Named{{dir, name, a.Ino, typ, uint64(a.Ino)}}
			}
			x.End(o)
		})
	})
}

func (s *sim) remove(u *user) {
	dir, name := s.dir(), s.name()
	was, _, _ := u.c.Ino(dir, name)
	x := u.c.Change().Name(dir, name).Inode(was)
	s.in(60, func() {
		ino := s.inodes[dir].names[name]
		inos := []meta.Ino{dir}
		if ino != 0 {
			inos = append(inos, ino)
		}
		failed, at := false, meta.Time{}
		s.change(u, inos, func() {
			d := s.inodes[dir]
			if failed = ino == 0 || d.names[name] != ino || len(s.inodes[ino].names) > 0; failed {
				return
			}
			s.inodes[ino].gone = true
			delete(d.names, name)
			s.touch(d)
			at = s.when()
		}, func() {
			o := Outcome{Failed: failed, At: at}
			if !failed {
				o.Names = []Named{{Dir: dir, Name: name}}
			}
			x.End(o)
		})
	})
}

// when is the time of a change, which an answer to a repeated request does not tell.
func (s *sim) when() meta.Time {
	if s.rng.IntN(4) == 0 {
		return meta.Time{}
	}
	return s.at()
}

// rename moves a name, if nothing is in the new place, or replaces a file there.
func (s *sim) rename(u *user) {
	dir, name, to, other := s.dir(), s.name(), s.dir(), s.name()
	if s.rng.IntN(2) == 0 {
		to = dir
	}
	moved, typ, known := u.c.Ino(dir, name)
	if !known {
		return // a client asks first
	}
	replaced, _, free := u.c.Ino(to, other)
	x := u.c.Change().Name(dir, name).Name(to, other).Inode(moved).Inode(replaced)
	s.in(60, func() {
		from, into := s.inodes[dir], s.inodes[to]
		ino, old := from.names[name], into.names[other]
		inos := slices.DeleteFunc([]meta.Ino{dir, to, ino, old}, func(i meta.Ino) bool { return i == 0 })
		failed, at := false, meta.Time{}
		s.change(u, inos, func() {
			failed = ino == 0 || ino == old || from.names[name] != ino || into.names[other] != old ||
				into.gone || s.inodes[ino].attr.Type == meta.Directory || old != 0 && s.inodes[old].names != nil
			if failed {
				return
			}
			if old != 0 {
				s.inodes[old].gone = true
			}
			delete(from.names, name)
			into.names[other] = ino
			s.touch(from)
			s.touch(into)
			s.inodes[ino].attr.Ctime = s.at()
			at = s.when()
		}, func() {
			o := Outcome{Failed: failed, At: at}
			if !failed && free && moved != replaced {
				o.Names = []Named{{Dir: dir, Name: name}, {Dir: to, Name: other, Ino: moved, Type: typ}}
				if dir == to {
					o.Moved = moved
				}
			}
			x.End(o)
		})
	})
}

// file is a file that is there; 0: there is none by that name.
func (s *sim) file() meta.Ino {
	ino := s.inodes[s.dir()].names[s.name()]
	if ino != 0 && s.inodes[ino].attr.Type == meta.Directory {
		return 0
	}
	return ino
}

// mark changes an attribute of a file, of which the answer says nothing.
func (s *sim) mark(u *user) {
	ino := s.file()
	if ino == 0 {
		return
	}
	x := u.c.Change().Inode(ino)
	s.in(60, func() {
		s.change(u, []meta.Ino{ino}, func() { s.inodes[ino].attr.Ctime = s.at() }, func() {
			x.End(Outcome{})
		})
	})
}

// write changes a file: its attributes come with the answer, or the client knows what it has told.
func (s *sim) write(u *user) {
	ino := s.file()
	if ino == 0 {
		return
	}
	x := u.c.Change().Inode(ino)
	s.in(60, func() {
		var a meta.Attr
		var data []byte
		s.change(u, []meta.Ino{ino}, func() {
			f := s.inodes[ino]
			f.attr.DataVersion++
			f.attr.Mtime, f.attr.Ctime = s.at(), s.at()
			f.data = fmt.Append(nil, "data ", s.now)
			f.attr.Size = int64(len(f.data))
			a, data = f.attr, f.data
			if s.rng.IntN(2) == 0 {
				a = s.attr(u, ino)
			}
		}, func() {
			if a.Serial != 0 {
				x.End(Outcome{Attrs: []*meta.Attr{&a}})
			} else {
				x.End(Outcome{Told: &Told{Ino: ino, Size: a.Size, Mtime: a.Mtime, Data: data}})
			}
		})
	})
}

// check compares every answer of every cache with what is true now.
func (s *sim) check() {
	root := meta.Cred{}
	for _, u := range s.users {
		for _, dir := range s.dirs {
			d := s.inodes[dir]
			for i := range simNames {
				name := fmt.Sprint("n", i)
				a, err, known := u.c.Lookup(&root, dir, name, true)
				if !known {
					continue
				}
				s.answers++
				ino := d.names[name]
				if (errs.KindOf(err) == errs.NotFound) != (ino == 0) || ino != 0 && a.Ino != ino {
					s.t.Fatalf("at %d client %d takes %s in %d for %d (%v), it is %d", s.now, u.id, name, dir,
						a.Ino, err, ino)
				}
			}
			for _, plus := range []bool{false, true} {
				s.checkPage(u, dir, plus)
			}
		}
		for ino, f := range s.inodes {
			s.checkFile(u, ino, f)
		}
	}
}

func (s *sim) checkPage(u *user, dir meta.Ino, plus bool) {
	page, known := u.c.Page(&meta.Cred{}, dir, 0, 10, plus)
	if !known {
		return
	}
	s.answers++
	want := s.page(dir, 0, 10)
	if plus {
		want = want[:len(page)]
	}
	for i := range page {
		page[i].Attr = nil
	}
	same := func(a, b meta.Entry) bool {
		return a.Name == b.Name && a.Ino == b.Ino && a.Type == b.Type && a.Cookie == b.Cookie
	}
	if !slices.EqualFunc(page, want, same) {
		s.t.Fatalf("at %d client %d lists %d as %v, it is %v", s.now, u.id, dir, page, want)
	}
}

func (s *sim) checkFile(u *user, ino meta.Ino, f *thing) {
	if a, ok := u.c.Attr(ino); ok {
		s.answers++
		if a.Mtime != f.attr.Mtime || a.Size != f.attr.Size || a.DataVersion != f.attr.DataVersion ||
			a.Nlink != f.attr.Nlink || a.Ctime != f.attr.Ctime {
			s.t.Fatalf("at %d client %d takes %d for %+v, it is %+v", s.now, u.id, ino, a, f.attr)
		}
	}
	if _, data, ok := u.c.Data(ino); ok {
		s.answers++
		if string(data) != string(f.data) {
			s.t.Fatalf("at %d client %d has %q of %d, it is %q", s.now, u.id, data, ino, f.data)
		}
	}
}

func TestModel(t *testing.T) {
	seeds := 200
	if testing.Short() {
		seeds = 50 // under the race detector
	}
	if n, err := strconv.Atoi(os.Getenv("CACHE_SEEDS")); err == nil {
		seeds = n
	}
	first, answers := rand.Uint64(), 0
	t.Logf("seeds from %d", first)
	for i := range seeds {
		s := newSim(t, first+uint64(i))
		for _, u := range s.users {
			var again func()
			again = func() {
				if s.rng.IntN(20) == 0 {
					u.deaf = !u.deaf
				}
				if !u.deaf || s.rng.IntN(4) == 0 {
					s.renew(u)
				}
				s.in(2*simLease/5, again)
			}
			again()
		}
		var step func()
		step = func() {
			u := s.user()
			switch s.rng.IntN(12) {
			case 0, 1, 2:
				s.find(u)
			case 3:
				s.list(u, s.dir(), 0)
			case 4, 5:
				s.create(u)
			case 6:
				s.remove(u)
			case 7, 8:
				s.write(u)
			case 9:
				s.mark(u)
			case 10:
				s.rename(u)
			case 11:
				dir, tok := s.dir(), u.c.Begin()
				s.in(60, func() {
					a := s.attr(u, dir)
					s.in(60, func() { u.c.PutAttr(tok, &a) })
				})
			}
			s.in(40+s.rng.IntN(400), step)
		}
		step()
		s.run(8 * simLease)
		if t.Failed() {
			t.Fatalf("seed %d", first+uint64(i))
		}
		answers += s.answers
	}
	if answers < seeds*200 {
		t.Errorf("the caches gave %d answers: hardly any", answers)
	}
}
