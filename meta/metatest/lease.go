package metatest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// listener is a client that takes leases and answers recalls, as its test wants.
type listener struct {
	*env
	c     meta.Caller
	seen  uint64
	epoch uint64
}

// listen makes a client with a session of its own that has listened.
func (e *env) listen() *listener {
	e.Helper()
	l := &listener{env: e, c: meta.Caller{Session: e.newSession(), Leases: true}}
	h := l.hear(0)
	if !h.Extended || h.Epoch == 0 || len(h.Recalls) != 0 {
		e.Fatalf("first Listen: %+v", h)
	}
	return l
}

// hear listens once.
func (l *listener) hear(wait time.Duration, acks ...meta.Recall) meta.Heard {
	l.Helper()
	h, err := l.Service.Listen(l.ctx, meta.Listening{Session: l.c.Session, Seen: l.seen,
		Acks: acks, WaitMs: uint32(wait.Milliseconds())})
	l.must(err)
	for _, r := range h.Recalls {
		l.seen = max(l.seen, r.Serial)
	}
	l.epoch = h.Epoch
	return h
}

// recalled waits for the recall of one inode.
func (l *listener) recalled(ino meta.Ino) meta.Recall {
	l.Helper()
	for stop := time.Now().Add(time.Minute); time.Now().Before(stop); {
		for _, r := range l.hear(time.Second).Recalls {
			if r.Ino == ino {
				return r
			}
			l.hear(0, r)
		}
	}
	l.Fatalf("inode %d is not recalled", ino)
	return meta.Recall{}
}

func (l *listener) find(dir meta.Ino, name string) meta.Found {
	l.Helper()
	f, err := l.Service.Find(l.ctx, l.c, dir, name)
	l.must(err)
	return f
}

// background does something that has to wait.
func (e *env) background(do func() error) (over func() error, done func() bool) {
	c := make(chan error, 1)
	go func() { c <- do() }()
	return func() error {
			select {
			case err := <-c:
				c <- err
				return err
			case <-time.After(time.Minute):
				return errs.TimedOut
			}
		}, func() bool {
			return len(c) > 0
		}
}

// recallStep is a change, and what it changes.
type recallStep struct {
	what string
	do   func() error
	inos []meta.Ino
}

// recallSteps are changes of two directories and of the file f in the first one.
func recallSteps(e *env, dir, sub, file meta.Ino) []recallStep {
	c, s := e.root(), e.Service
	set := func(mask meta.SetMask, a meta.Attr, ino meta.Ino) error {
		_, err := s.SetAttr(e.ctx, c, ino, mask, a)
		return err
	}
	return []recallStep{
		{"mode", func() error { return set(meta.SetMode, meta.Attr{Mode: 0o600}, file) },
			[]meta.Ino{file}},
		{"size", func() error { return set(meta.SetSize, meta.Attr{Size: 9}, file) }, []meta.Ino{file}},
		{"times of a directory", func() error { return set(meta.SetMtimeNow, meta.Attr{}, dir) },
			[]meta.Ino{dir}},
		{"xattr", func() error { return s.SetXattr(e.ctx, c, file, "user.a", nil, false, false) },
			[]meta.Ino{file}},
		{"no xattr", func() error { return s.RemoveXattr(e.ctx, c, file, "user.a") }, []meta.Ino{file}},
		{"make", func() error {
			_, err := s.Make(e.ctx, c, dir, "made", meta.NewFile{Type: meta.Fifo})
			return err
		}, []meta.Ino{dir}},
		{"create", func() error { _, err := e.create(dir, "created", meta.OpenRead); return err },
			[]meta.Ino{dir}},
		{"link", func() error { _, err := s.Link(e.ctx, c, file, sub, "l"); return err },
			[]meta.Ino{sub, file}},
		{"rename", func() error { return Failed(s.Rename(e.ctx, c, dir, "f", sub, "f", 0)) },
			[]meta.Ino{dir, sub, file}},
		{"replace", func() error { return Failed(s.Rename(e.ctx, c, dir, "made", sub, "f", 0)) },
			[]meta.Ino{dir, sub, file}},
		{"open for writing", func() error {
			h, err := s.Open(e.ctx, c, file, meta.OpenWrite)
			if err == nil {
				err = s.Close(e.ctx, c, meta.Closing{Handle: h.ID})
			}
			return err
		}, []meta.Ino{file}},
		{"remove", func() error { return Failed(s.Remove(e.ctx, c, sub, "l", false)) },
			[]meta.Ino{sub, file}},
	}
}

// testLeasesAreRecalled: each kind of change waits for who relies on what it changes, and nobody
// else does.
func testLeasesAreRecalled(e *env) {
	dir, sub := e.mkdir(meta.RootIno, "d"), e.mkdir(meta.RootIno, "e")
	s := e.Service
	for _, step := range recallSteps(e, dir, sub, e.mkfile(dir, "f")) {
		e.clock.advance(3 * time.Second) // what is recalled again and again is not lent
		e.must(s.KeepAlive(e.ctx, e.session))
		e.joinAll()
		l := e.listen()
		for _, ino := range step.inos {
			a, err := s.GetAttr(e.ctx, l.c, ino)
			if err != nil || a.Lease != meta.LeaseRead || a.Serial <= l.epoch {
				e.Fatalf("before %s: %v: %+v", step.what, err, a)
			}
		}
		over, done := e.background(step.do)
		for left := len(step.inos); left > 0; {
			h := l.hear(50 * time.Millisecond)
			if len(h.Recalls) == 0 && done() {
				e.Fatalf("%s: %v, and %d inodes were not recalled", step.what, over(), left)
			}
			for _, r := range h.Recalls {
				if time.Sleep(time.Millisecond); done() {
					e.Fatalf("%s does not wait for inode %d", step.what, r.Ino)
				}
				l.hear(0, r)
				left--
			}
		}
		if err := over(); err != nil {
			e.Fatalf("%s: %v", step.what, err)
		}
		if h := l.hear(0); len(h.Recalls) != 0 || !h.Extended {
			e.Fatalf("%s: %+v", step.what, h)
		}
		e.must(s.EndSession(e.ctx, l.c.Session))
	}
}

// testOwnChangesRecallNothing: a client learns what it does itself from the answers.
func testOwnChangesRecallNothing(e *env) {
	l := e.listen()
	dir := e.mkdir(meta.RootIno, "d")
	if f := l.find(dir, "x"); f.Present || f.Dir.Lease != meta.LeaseRead || f.Dir.Ino != dir {
		e.Fatalf("a name that is not there: %+v", f)
	}
	h, err := e.Service.Create(e.ctx, l.c, dir, "x", meta.NewFile{Mode: 0o644}, readWrite)
	e.must(err)
	if h.Attr.Lease != meta.LeaseWrite || !h.Attr.Small || h.Data == nil || h.Attr.Serial == 0 {
		e.Fatalf("%+v", h)
	}
	if f := l.find(dir, "x"); !f.Present || f.Attr.Ino != h.Attr.Ino || f.Dir.Size != 1 {
		e.Fatalf("%+v", f)
	}
	e.must(e.Service.Close(e.ctx, l.c, meta.Closing{Handle: h.ID}))
	a, err := e.Service.Make(e.ctx, l.c, dir, "y", meta.NewFile{Type: meta.Symlink, Target: "t"})
	if err != nil || a.Lease != meta.LeaseRead {
		e.Fatalf("%v: %+v", err, a)
	}
	if f := l.find(dir, "y"); f.Target != "t" {
		e.Fatalf("%+v", f)
	}
	e.must(Failed(e.Service.Rename(e.ctx, l.c, dir, "y", dir, "z", 0)))
	e.must(Failed(e.Service.Remove(e.ctx, l.c, dir, "z", false)))
	if h := l.hear(0); len(h.Recalls) != 0 || !h.Extended {
		e.Fatalf("%+v", h)
	}
	entries, err := e.Service.ReadDir(e.ctx, l.c, dir, 0, 10, true)
	if err != nil || len(entries) != 1 || entries[0].Attr.Lease == meta.LeaseNone {
		e.Fatalf("%v: %+v", err, entries)
	}
}

// testSilentHolder: who does not answer delays others for the time of a lease, and hears that it
// has lost all of them.
func testSilentHolder(e *env) {
	l := e.listen()
	dir := e.mkdir(meta.RootIno, "d")
	other := e.mkdir(meta.RootIno, "other")
	for _, ino := range []meta.Ino{dir, other} {
		if a, err := e.Service.GetAttr(e.ctx, l.c, ino); err != nil || a.Lease == meta.LeaseNone {
			e.Fatalf("%v: %+v", err, a)
		}
	}
	over, done := e.background(func() error {
		_, err := e.Service.Make(e.ctx, e.root(), dir, "x", meta.NewFile{Type: meta.Fifo})
		return err
	})
	r := l.recalled(dir)
	if h := l.hear(0); h.Extended {
		e.Fatal("extended while it owes an answer")
	}
	e.clock.advance(leaseTime - time.Millisecond)
	if time.Sleep(20 * time.Millisecond); done() {
		e.Fatal("the lease has not run out")
	}
	before := l.epoch
	e.clock.advance(2 * time.Millisecond)
	e.must(over())
	h := l.hear(0, r) // too late
	if h.Epoch <= before || !h.Extended {
		e.Fatalf("epoch %d after %d: %+v", h.Epoch, before, h)
	}
	// Nobody waits for what is gone, and what is lent now counts.
	e.mkdir(other, "y")
	a, err := e.Service.GetAttr(e.ctx, l.c, other)
	if err != nil || a.Lease != meta.LeaseRead || a.Serial <= h.Epoch {
		e.Fatalf("%v: %+v", err, a)
	}
}

// testWriterAndReader: while another session has a file open to read nobody has it alone. What the
// only writer holds back it must send before the other one has opened it.
func testWriterAndReader(e *env) {
	l, other := e.listen(), e.listen()
	ino := e.mkfile(meta.RootIno, "f")
	h, err := e.Service.Open(e.ctx, l.c, ino, readWrite)
	if err != nil || h.Attr.Lease != meta.LeaseWrite || h.Attr.Small {
		e.Fatalf("%v: %+v", err, h)
	}
	var r meta.Handle
	over, done := e.background(func() (err error) {
		r, err = e.Service.Open(e.ctx, other.c, ino, meta.OpenRead)
		return err
	})
	recall := l.recalled(ino)
	if done() {
		e.Fatal("it is open, and its writer has not answered")
	}
	e.objects.Write(ino, 700)
	l.hear(0, recall)
	e.must(over())
	if r.Attr.Size != 700 {
		e.Fatalf("it has %d bytes for who opens it", r.Attr.Size)
	}
	lent := func(want meta.LeaseMode) {
		e.Helper()
		a, err := e.Service.GetAttr(e.ctx, l.c, ino)
		if err != nil || a.Lease != want {
			e.Fatalf("its writer has lease %d, not %d, %v", a.Lease, want, err)
		}
	}
	lent(meta.LeaseNone)
	e.must(e.Service.Close(e.ctx, other.c, meta.Closing{Handle: r.ID}))
	lent(meta.LeaseWrite)
	own, err := e.Service.Open(e.ctx, l.c, ino, meta.OpenRead) // its own does not count
	e.must(err)
	lent(meta.LeaseWrite)
	e.must(e.Service.Close(e.ctx, l.c, meta.Closing{Handle: own.ID}))
	e.must(e.Service.Close(e.ctx, l.c, meta.Closing{Handle: h.ID}))
}

// testSoleWriter: size and times are the only writer's; whoever looks makes it tell them.
func testSoleWriter(e *env) {
	l := e.listen()
	ino := e.mkfile(meta.RootIno, "f")
	h, err := e.Service.Open(e.ctx, l.c, ino, readWrite)
	if err != nil || h.Attr.Lease != meta.LeaseWrite || h.Attr.Small {
		e.Fatalf("%v: %+v", err, h)
	}
	e.objects.Write(ino, 700)
	over, _ := e.background(func() error {
		a, err := e.Service.GetAttr(e.ctx, e.root(), ino)
		if err == nil && (a.Size != 700 || a.Lease != meta.LeaseNone || a.Mtime.Sec != 5) {
			err = fmt.Errorf("%+v", a)
		}
		return err
	})
	r := l.recalled(ino)
	w := told(ino, 700, h.Attr.TruncSeq, 5e9)
	w.Epoch = l.epoch
	_, err = e.Service.SetAttr(e.ctx, l.c, ino, meta.SetMtime, meta.Attr{Mtime: meta.UnixTime(0, 4e9)})
	e.must(err)
	_, err = e.Service.Commit(e.ctx, l.c, w, false)
	e.must(err)
	l.hear(0, r)
	e.must(over())
	_, err = e.Service.Commit(e.ctx, l.c, w, false)
	e.want(errs.Fenced, err, "commit under a lease that was given back")
	a, err := e.Service.GetAttr(e.ctx, l.c, ino)
	if err != nil || a.Lease != meta.LeaseWrite {
		e.Fatalf("the only writer asks again: %v: %+v", err, a)
	}
	// A second writer: then nobody has it alone.
	over, _ = e.background(func() error {
		second, err := e.Service.Open(e.ctx, e.root(), ino, meta.OpenWrite)
		if err == nil {
			err = e.Service.Close(e.ctx, e.root(), meta.Closing{Handle: second.ID})
		}
		return err
	})
	r = l.recalled(ino)
	l.hear(0, r)
	e.must(over())
	e.must(e.Service.Close(e.ctx, l.c, wrote(h.ID, 700, h.Attr.TruncSeq, 6e9)))
	if a := e.attr(ino); a.Writers || a.Size != 700 {
		e.Fatalf("%+v", a)
	}
}

// testLeasesAfterRestart: nothing changes before those who may hold leases are back, or leases have
// run out; what a sole writer has not told is not taken for granted meanwhile.
func testLeasesAfterRestart(e *env) {
	l := e.listen()
	ino := e.mkfile(meta.RootIno, "f")
	a, err := e.Service.GetAttr(e.ctx, l.c, meta.RootIno)
	e.must(err)
	h, err := e.Service.Open(e.ctx, l.c, ino, meta.OpenWrite)
	if err != nil || h.Attr.Lease != meta.LeaseWrite {
		e.Fatalf("%v: %+v", err, h)
	}
	before := l.hear(0)
	e.restart()
	early, _ := e.background(func() error { return e.tellEarly(l.c, ino, before.Epoch) })
	over, done := e.background(func() error {
		_, err := e.Service.Make(e.ctx, e.root(), meta.RootIno, "x", meta.NewFile{Type: meta.Fifo})
		return err
	})
	look, looked := e.background(func() error {
		a, err := e.Service.GetAttr(e.ctx, e.root(), ino)
		if err == nil && a.Size != 55 {
			err = fmt.Errorf("%+v", a)
		}
		return err
	})
	if time.Sleep(20 * time.Millisecond); done() || looked() {
		e.Fatal("somebody did not wait for those who may hold leases")
	}
	heard := l.hear(0)
	if heard.Epoch <= a.Serial {
		e.Fatalf("epoch %d, and a lease of the last life has serial %d", heard.Epoch, a.Serial)
	}
	claim := held(h, meta.OpenWrite)
	claim.Write, claim.DataVersion = true, h.Attr.DataVersion
	_, err = e.Service.Claim(e.ctx, l.c.Session, heard.Life-1, []meta.Claimed{claim}, true)
	e.want(errs.Conflict, err, "a claim for another life")
	got, err := e.Service.Claim(e.ctx, l.c.Session, heard.Life, []meta.Claimed{claim}, true)
	if err != nil || got[0].Lease != meta.LeaseWrite || got[0].Gone {
		e.Fatalf("%v: %+v", err, got)
	}
	e.must(over())
	e.must(early())
	r := l.recalled(ino)
	w := told(ino, 55, 0, 9e9)
	w.Epoch = heard.Epoch
	_, err = e.Service.Commit(e.ctx, l.c, w, false)
	e.must(err)
	l.hear(0, r)
	e.must(look())
	e.must(e.Service.Close(e.ctx, l.c, meta.Closing{Handle: h.ID}))
}

// tellEarly tells something under a lease of the last life, before its holder has heard that the
// service was restarted: it is put off until the lease is claimed.
func (e *env) tellEarly(c meta.Caller, ino meta.Ino, epoch uint64) error {
	w := told(ino, 33, 0, 8e9)
	w.Epoch = epoch
	for {
		_, err := e.Service.Commit(e.ctx, c, w, false)
		if errs.KindOf(err) != errs.Again {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// testLeaseRace: clients that keep what they are told, and answer recalls, are never wrong about a
// counter that is a name in a directory.
func testLeaseRace(e *env) {
	dir := e.mkdir(meta.RootIno, "d")
	e.mkfile(dir, "n0")
	seed := rand.Uint64()
	e.Logf("seed %d", seed)
	var hearing, working sync.WaitGroup
	r := &leaseRace{env: e, dir: dir, begun: time.Now(), over: make(chan struct{})}
	for i := range 4 {
		k := &keeper{listener: e.listen(), names: map[string]uint64{}}
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		hearing.Go(func() { r.hear(k) })
		working.Go(func() { r.work(k, rng) })
	}
	working.Wait()
	close(r.over)
	hearing.Wait()
	if r.hits == 0 || r.moves == 0 {
		e.Fatalf("%d answers from what was kept, %d changes: the run shows nothing", r.hits, r.moves)
	}
}

// leaseRace is one run. at is what the file in the directory is called: a number that only grows.
type leaseRace struct {
	*env
	dir   meta.Ino
	begun time.Time
	over  chan struct{} // closed when nobody works any more

	mu    sync.Mutex
	at    int // has certainly been reached
	hits  int
	moves int
}

// goesOn tells whether there is more to do: for a while, and on a busy machine until the run has
// shown something.
func (r *leaseRace) goesOn() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	passed := time.Since(r.begun)
	return passed < 250*time.Millisecond || (r.hits == 0 || r.moves == 0) && passed < time.Minute
}

// keeper is a client that keeps absence of names.
type keeper struct {
	*listener
	mu     sync.Mutex
	names  map[string]uint64 // names that are not there, with the serial of the lease
	recall uint64            // of the directory, last
	own    int               // own changes
}

func (r *leaseRace) isOver() bool {
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}

func (r *leaseRace) hear(k *keeper) {
	var acks []meta.Recall
	for !r.isOver() {
		h, err := r.Service.Listen(r.ctx, meta.Listening{Session: k.c.Session, Seen: k.seen, Acks: acks,
			WaitMs: 50})
		if err != nil {
			r.Error(err)
			return
		}
		acks = h.Recalls
		for _, x := range h.Recalls {
			k.seen = max(k.seen, x.Serial)
			k.mu.Lock()
			k.recall = max(k.recall, x.Serial)
			clear(k.names)
			k.mu.Unlock()
		}
	}
	_ = r.Service.EndSession(r.ctx, k.c.Session)
}

// work moves the file to the next name, or asks whether the next name is there: while somebody
// knows that it is not, it must not be.
func (r *leaseRace) work(k *keeper, rng *rand.Rand) {
	for r.goesOn() {
		r.mu.Lock()
		at := r.at
		r.mu.Unlock()
		if rng.IntN(8) == 0 {
			k.mu.Lock()
			k.own++
			clear(k.names)
			k.mu.Unlock()
			_, err := r.Service.Rename(r.ctx, k.c, r.dir, fmt.Sprint("n", at), r.dir,
				fmt.Sprint("n", at+1), 0)
			k.mu.Lock()
			k.own++
			clear(k.names)
			k.mu.Unlock()
			if err == nil {
				r.mu.Lock()
				r.at = max(r.at, at+1)
				r.moves++
				r.mu.Unlock()
			}
			continue
		}
		r.ask(k, fmt.Sprint("n", at+1), at+1)
	}
}

// ask looks for a name, in what is kept first. If it was reached before, it must not be absent:
// names are not given twice, but moved on, so that then another one is there.
func (r *leaseRace) ask(k *keeper, name string, n int) {
	r.mu.Lock()
	reached := r.at >= n
	r.mu.Unlock()
	k.mu.Lock()
	_, absent := k.names[name]
	own := k.own
	k.mu.Unlock()
	if absent {
		r.mu.Lock()
		r.hits++
		r.mu.Unlock()
		if reached {
			r.Errorf("%s is there, and a client believes that it is not", name)
		}
		return
	}
	f, err := r.Service.Find(r.ctx, k.c, r.dir, name)
	if err != nil {
		r.Error(err)
		return
	}
	k.mu.Lock()
	if !f.Present && f.Dir.Lease != meta.LeaseNone && f.Dir.Serial > k.recall && own == k.own {
		k.names[name] = f.Dir.Serial
	}
	k.mu.Unlock()
}
