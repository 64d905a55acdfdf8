package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
	"github.com/sluice-storage/sluice/meta/store"
)

// hooked runs something between an operation's reading and its commit: the moment at which a race
// would be lost.
type hooked struct {
	kv.Store
	hook func() // runs once
}

func (h *hooked) Commit(ctx context.Context, t *kv.Txn) (kv.Result, error) {
	if run := h.hook; run != nil {
		h.hook = nil
		run()
	}
	return h.Store.Commit(ctx, t)
}

// pair is two services on one engine. What b does comes between what a reads and what a writes.
// They are two because a's lock, which keeps moves of directories apart, must not hide whether
// the transactions do. Open files are known to one service only: where they matter b is not used.
type pair struct {
	t       *testing.T
	engine  *hooked
	a, b    *store.Store
	session uint64
	c       meta.Caller
	dir     meta.Ino // /d
	file    meta.Ino // /f
}

func newPair(t *testing.T) *pair {
	inner := memkv.New(memkv.Options{})
	p := &pair{t: t, engine: &hooked{Store: inner}}
	p.a = newStore(t, p.engine)
	b, err := store.New(t.Context(), inner, store.Options{Objects: metatest.NewObjects()})
	p.must(err)
	t.Cleanup(b.Stop)
	p.b = b
	info, err := p.a.NewSession(t.Context(), "pair")
	p.must(err)
	p.session, p.c = info.ID, meta.Caller{Session: info.ID}
	p.dir = p.make(meta.RootIno, "d", meta.Directory)
	p.file = p.make(meta.RootIno, "f", meta.Regular)
	return p
}

func (p *pair) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *pair) make(dir meta.Ino, name string, typ meta.Type) meta.Ino {
	p.t.Helper()
	a, err := p.a.Make(p.t.Context(), meta.Caller{}, dir, name, meta.NewFile{Type: typ, Mode: 0o777})
	p.must(err)
	return a.Ino
}

func (p *pair) open(s *store.Store, flags meta.OpenFlags) uint64 {
	p.t.Helper()
	h, err := s.Open(p.t.Context(), p.c, p.file, flags)
	p.must(err)
	return h.ID
}

func (p *pair) close(s *store.Store, id uint64) error {
	return s.Close(p.t.Context(), p.c, meta.Closing{Handle: id})
}

func (p *pair) unlink(s *store.Store) error {
	return metatest.Failed(s.Remove(p.t.Context(), p.c, meta.RootIno, "f", false))
}

// race is one case: prepare, then a's operation with b's in its middle.
type race struct {
	name string
	test func(p *pair) (a func() error, b func() error)
	want errs.Kind // of a
	gone bool      // /f's inode is gone afterwards

	waits bool // b waits for a
}

var races = []race{
	{name: "moves of directories into each other", want: errs.Invalid,
		test: func(p *pair) (func() error, func() error) {
			// Deep enough that neither move reads what the other writes, but for keyRename.
			other := p.make(meta.RootIno, "e", meta.Directory)
			below, belowOther := p.make(p.dir, "x", meta.Directory), p.make(other, "y", meta.Directory)
			return func() error {
					return metatest.Failed(p.a.Rename(p.t.Context(), p.c, meta.RootIno, "d", belowOther, "d", 0))
				}, func() error {
					return metatest.Failed(p.b.Rename(p.t.Context(), p.c, meta.RootIno, "e", below, "e", 0))
				}
		}},
	{name: "unlink of an open file that is closed", gone: true,
		test: func(p *pair) (func() error, func() error) {
			h := p.open(p.a, meta.OpenRead)
			return func() error { return p.unlink(p.a) }, func() error { return p.close(p.a, h) }
		}},
	{name: "unlink of a file that is opened", gone: true, waits: true,
		test: func(p *pair) (func() error, func() error) {
			return func() error { return p.unlink(p.a) }, func() error {
				_, err := p.a.Open(p.t.Context(), p.c, p.file, meta.OpenRead)
				if errs.KindOf(err) != errs.NotFound {
					p.t.Errorf("a file that is gone is opened: %v", err)
				}
				return nil
			}
		}},
	{name: "open of a file that is unlinked",
		test: func(p *pair) (func() error, func() error) {
			return func() error {
				_, err := p.a.Open(p.t.Context(), p.c, p.file, meta.OpenWrite)
				return err
			}, func() error { return p.unlink(p.a) }
		}},
	{name: "close of an orphan by two", gone: true,
		test: func(p *pair) (func() error, func() error) {
			h, i := p.open(p.a, meta.OpenRead), p.open(p.a, meta.OpenWrite)
			p.must(p.unlink(p.a))
			return func() error { return p.close(p.a, i) }, func() error { return p.close(p.a, h) }
		}},
	{name: "close of a file that is unlinked", gone: true,
		test: func(p *pair) (func() error, func() error) {
			h := p.open(p.a, meta.OpenWrite)
			return func() error { return p.close(p.a, h) }, func() error { return p.unlink(p.a) }
		}},
	{name: "close of a writer while another opens", waits: true,
		test: func(p *pair) (func() error, func() error) {
			h := p.open(p.a, meta.OpenWrite)
			return func() error { return p.close(p.a, h) }, func() error {
				h, err := p.a.Open(p.t.Context(), p.c, p.file, meta.OpenWrite)
				if err == nil && !h.Attr.Writers {
					p.t.Error("the inode does not know of its writer")
				}
				return err
			}
		}},
	{name: "rmdir of a directory that gets a file", want: errs.NotEmpty,
		test: func(p *pair) (func() error, func() error) {
			return func() error {
					return metatest.Failed(p.a.Remove(p.t.Context(), p.c, meta.RootIno, "d", true))
				}, func() error {
					_, err := p.b.Make(p.t.Context(), p.c, p.dir, "x", meta.NewFile{Type: meta.Fifo})
					return err
				}
		}},
	{name: "create in a directory that is removed", want: errs.NotFound,
		test: func(p *pair) (func() error, func() error) {
			return func() error {
					_, err := p.a.Make(p.t.Context(), p.c, p.dir, "x", meta.NewFile{Type: meta.Fifo})
					return err
				}, func() error {
					return metatest.Failed(p.b.Remove(p.t.Context(), p.c, meta.RootIno, "d", true))
				}
		}},
	{name: "create in a directory that is closed to the user", want: errs.Access,
		test: func(p *pair) (func() error, func() error) {
			user := meta.Caller{Cred: meta.Cred{UID: 1000, GID: 1000}}
			return func() error {
					_, err := p.a.Make(p.t.Context(), user, p.dir, "x", meta.NewFile{Type: meta.Fifo})
					return err
				}, func() error {
					_, err := p.b.SetAttr(p.t.Context(), p.c, p.dir, meta.SetMode, meta.Attr{Mode: 0o755})
					return err
				}
		}},
	{name: "link of a file that is unlinked", want: errs.NotFound, gone: true,
		test: func(p *pair) (func() error, func() error) {
			return func() error {
				_, err := p.a.Link(p.t.Context(), p.c, p.file, p.dir, "x")
				return err
			}, func() error { return p.unlink(p.b) }
		}},
	{name: "attribute of a file that is unlinked", want: errs.NotFound, gone: true,
		test: func(p *pair) (func() error, func() error) {
			return func() error {
				return p.a.SetXattr(p.t.Context(), p.c, p.file, "user.x", nil, false, false)
			}, func() error { return p.unlink(p.b) }
		}},
	{name: "unlink of a file that gets an attribute", gone: true,
		test: func(p *pair) (func() error, func() error) {
			return func() error { return p.unlink(p.a) }, func() error {
				return p.b.SetXattr(p.t.Context(), p.c, p.file, "user.x", nil, false, false)
			}
		}},
	{name: "open by a session that ends", want: errs.Stale,
		test: func(p *pair) (func() error, func() error) {
			return func() error {
				_, err := p.a.Open(p.t.Context(), p.c, p.file, meta.OpenWrite)
				return err
			}, func() error { return p.a.EndSession(p.t.Context(), p.session) }
		}},
	{name: "two of a name", want: errs.Exists,
		test: func(p *pair) (func() error, func() error) {
			mk := func(s *store.Store) error {
				_, err := s.Make(p.t.Context(), p.c, p.dir, "x", meta.NewFile{Type: meta.Fifo})
				return err
			}
			return func() error { return mk(p.a) }, func() error { return mk(p.b) }
		}},
	{name: "rename onto a name that appears", want: errs.Exists,
		test: func(p *pair) (func() error, func() error) {
			return func() error {
					return metatest.Failed(p.a.Rename(p.t.Context(), p.c, meta.RootIno, "f", p.dir, "x",
						meta.RenameNoReplace))

				}, func() error {
					_, err := p.b.Make(p.t.Context(), p.c, p.dir, "x", meta.NewFile{Type: meta.Fifo})
					return err
				}
		}},
}

// TestEveryRaceIsNoticed loses each race on purpose.
func TestEveryRaceIsNoticed(t *testing.T) {
	for _, r := range races {
		t.Run(r.name, func(t *testing.T) {
			p := newPair(t)
			a, b := r.test(p)
			done := make(chan struct{})
			p.engine.hook = func() {
				run := func() {
					if err := b(); err != nil {
						t.Error(err)
					}
					close(done)
				}
				if r.waits {
					go run()
					time.Sleep(5 * time.Millisecond)
				} else {
					run()
				}
			}
			if err := a(); errs.KindOf(err) != r.want {
				t.Fatalf("got %v, want kind %q", err, r.want)
			}
			<-done
			_, err := p.a.GetAttr(t.Context(), meta.Caller{}, p.file)
			if gone := errs.KindOf(err) == errs.NotFound; gone != r.gone {
				t.Fatalf("the file is gone: %v, want %v", gone, r.gone)
			}
			verify(t, p.a)
		})
	}
}

// hookedObjects runs something between a measurement and its answer.
type hookedObjects struct {
	*metatest.Objects
	hook func()
}

func (o *hookedObjects) Measure(ctx context.Context, f meta.FileRef) (int64, error) {
	size, err := o.Objects.Measure(ctx, f)
	if run := o.hook; run != nil {
		o.hook = nil
		run()
	}
	return size, err
}

// TestTruncationWhileMeasuring: a size that was measured before a truncation is not taken for one
// after it.
func TestTruncationWhileMeasuring(t *testing.T) {
	w := newWorld(t)
	w.store.Stop()
	hook := &hookedObjects{Objects: w.objects}
	s, err := store.New(t.Context(), w.engine, store.Options{Objects: hook, Tick: time.Hour})
	w.must(err)
	defer s.Stop()
	c := meta.Caller{Session: w.session}
	h, err := s.Create(t.Context(), c, meta.RootIno, "f", meta.NewFile{}, meta.OpenWrite)
	w.must(err)
	w.objects.Write(h.Attr.Ino, 100)
	_, err = s.Commit(t.Context(), c, told(h.Attr.Ino, 50, 0, 1), false)
	w.must(err)
	hook.hook = func() {
		_, err := s.SetAttr(t.Context(), c, h.Attr.Ino, meta.SetSize, meta.Attr{Size: 10})
		w.must(err)
	}
	if a, err := s.GetAttr(t.Context(), c, h.Attr.Ino); err != nil || a.Size != 10 {
		t.Fatalf("%v: %d bytes, want 10", err, a.Size)
	}
}
