package client

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// TestBothDie: a client has written and not synced, and dies. Its successor's Sync says that this
// may be lost where an I/O server has died, too, once for each handle; where it has not nothing is
// lost, and nothing is said.
func TestBothDie(t *testing.T) {
	for name, one := range map[string]struct {
		synced bool   // by the client that dies
		server uint32 // that dies, too; 0: none
		lost   bool
	}{
		"the client alone":     {false, 0, false},
		"both":                 {false, 2, true},
		"both, and all synced": {true, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			w := newWired(t, 2)
			w.crashes = true
			opts := Options{Providers: w.far(), WaitMax: 30 * time.Second, Cred: &meta.Cred{},
				Identity: "mount"}
			dead, err := Dial(ctx, "sluice://"+w.addr, opts)
			must(t, err)
			f := create(t, dead, "f", 2)
			write(t, f, pattern(4*unit, 1), 0)
			changes := dead.LifeChanges()
			if !f.Unsynced() || !dead.Unsynced()[f.Ino()] || changes == 0 {
				t.Fatal("what was written is not known to be unsynced")
			}
			if one.synced {
				must(t, f.Sync(ctx))
			}
			lives, unsynced := dead.Lives(), dead.Unsynced()[f.Ino()]
			if len(lives) != 2 || unsynced == one.synced || dead.LifeChanges() != changes {
				t.Fatalf("lives %v, unsynced: %v", lives, unsynced)
			}
			opts.Succeeds = []uint64{die(t, dead)}
			if one.server != 0 {
				w.stop[one.server]()
				w.start[one.server]()
			}
			fs, err := Dial(ctx, "sluice://"+w.addr, opts)
			must(t, err)
			defer func() { must(t, fs.Close()) }()
			inherits(t, fs, f.Ino(), lives, unsynced, one.lost)
		})
	}
}

// inherits opens a file that a dead client has left, by two handles, and looks at what their Sync
// says.
func inherits(t *testing.T, fs *FS, ino meta.Ino, lives map[uint32]uint64, unsynced, lost bool) {
	t.Helper()
	ctx := context.Background()
	var handles []*File
	for range 2 {
		g, err := fs.OpenIno(ctx, meta.Cred{}, ino, meta.OpenRead|meta.OpenWrite)
		must(t, err)
		must(t, g.Inherit(ctx, true))
		if unsynced {
			g.InheritUnsynced(lives)
		}
		handles = append(handles, g)
	}
	must(t, fs.EndSuccession(ctx))
	if fs.Unsynced()[ino] != unsynced {
		t.Fatal("what is inherited is not known, or what is not")
	}
	for id, verifier := range fs.Lives() {
		if unsynced && verifier != lives[id] {
			t.Fatal("a life is told in which what was written is not known to be safe")
		}
	}
	for _, g := range handles {
		if err := g.Sync(ctx); lost != (errs.KindOf(err) == errs.IO) || !lost && err != nil {
			t.Fatalf("lost: %v, and Sync says: %v", lost, err)
		}
		must(t, g.Sync(ctx))
	}
	if fs.Unsynced()[ino] || len(fs.Lives()) != 2 {
		t.Fatal("it is not settled")
	}
	for _, g := range handles {
		must(t, g.Close(ctx))
	}
}
