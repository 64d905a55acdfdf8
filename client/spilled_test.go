package client

import (
	"context"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// onceWritten has do done at the first write to an I/O server.
func (c *cluster) onceWritten(do func() error) {
	done := false
	c.setHook(func(k call) error {
		if k.op != iod.OpWrite || done {
			return nil
		}
		done = true
		return do()
	})
}

// TestSpillingFileIsClaimed: a service that is restarted while a small file moves out hears that
// I/O servers may have some of it.
func TestSpillingFileIsClaimed(t *testing.T) {
	c := newCluster(t, 1, store.Options{})
	fs := c.client(Options{})
	f := createSmall(t, fs, "f", 1)
	write(t, f, []byte("content"), 0)
	seq := f.node.sequence()
	var claimed meta.Claimed
	c.onceWritten(func() error {
		claimed = f.node.claim(1, meta.OpenWrite, 0)
		return nil
	})
	must(t, fs.moveOut(context.Background(), f))
	if claimed.Spilled != meta.SpilledUnder(seq) {
		t.Errorf("it is claimed with %d, want %d", claimed.Spilled, meta.SpilledUnder(seq))
	}
	if s := f.node.claim(1, meta.OpenWrite, 0).Spilled; s != 0 {
		t.Errorf("when it has moved out it is claimed with %d", s)
	}
	must(t, f.Close(context.Background()))
}

// TestCutWhileMovingOut: a client empties a small file that it is just moving out. What it had to
// tell before is not told when the move-out fails.
func TestCutWhileMovingOut(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 1, store.Options{})
	fs := c.client(Options{})
	listened(t, fs)
	f := createSmall(t, fs, "f", 1)
	write(t, f, []byte("content"), 0)
	c.onceWritten(func() error {
		g, err := fs.OpenIno(ctx, *fs.opts.Cred, f.Ino(), meta.OpenWrite|meta.OpenTruncate)
		if err == nil {
			err = g.Close(ctx)
		}
		must(t, err)
		return errs.New(errs.NoSpace, "double", "", nil)
	})
	must(t, f.node.telling.take(ctx))
	err := fs.moveOutOnce(ctx, ctx, f)
	f.node.telling.giveBack()
	if errs.KindOf(err) != errs.NoSpace {
		t.Fatal(err)
	}
	if f.node.untold() {
		t.Error("there is something to tell of a file that was emptied")
	}
	must(t, f.Close(ctx))
}
