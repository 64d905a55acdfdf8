package client

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta/store"
)

func TestKnownDead(t *testing.T) {
	own := ownIdentity()
	if own.boot == "?" || own.space == "?" {
		t.Fatalf("%+v", own)
	}
	a, b := uniqueName("x"), uniqueName("x")
	if a == b || knownDead(a) || !strings.HasPrefix(a, "x [") {
		t.Fatalf("%q and %q", a, b)
	}
	child := exec.Command("true")
	must(t, child.Start())
	name := func(boot, space string) string {
		return fmt.Sprintf("host:1 [%s/%s/%d/1]", boot, space, child.Process.Pid)
	}
	for deadline := time.Now().Add(time.Minute); !knownDead(name(own.boot, own.space)); {
		if time.Now().After(deadline) {
			t.Fatal("a zombie is not known to be dead")
		}
		time.Sleep(time.Millisecond)
	}
	must(t, child.Wait())
	for text, dead := range map[string]bool{
		name(own.boot, own.space):  true,
		name("another", own.space): false,
		name(own.boot, "another"):  false,
		"host:1":                   false,
		"host:1 [a/b/c/d]":         false,
		"":                         false,
	} {
		if knownDead(text) != dead {
			t.Errorf("%q: known to be dead: %v", text, !dead)
		}
	}
}

// TestVolumeHasOneWriter: a second client is refused until the first has closed the volume, which
// syncs it; or is dead.
func TestVolumeHasOneWriter(t *testing.T) {
	c := newCluster(t, 2, store.Options{})
	ctx := context.Background()
	a, b := c.client(Options{}), c.client(Options{})
	_, err := a.CreateVolume(ctx, "disk", 1<<20, unit, 2)
	must(t, err)
	f, _, err := a.OpenVolume(ctx, "disk", false)
	must(t, err)
	write(t, f, pattern(4*unit, 1), 0)
	if _, _, err := b.OpenVolume(ctx, "disk", false); errs.KindOf(err) != errs.Busy ||
		!strings.Contains(err.Error(), a.name) {
		t.Fatalf("a second writer: %v", err)
	}
	r, _, err := b.OpenVolume(ctx, "disk", true)
	must(t, err)
	must(t, r.Close(ctx))
	must(t, f.Close(ctx))
	c.lose(1)
	c.lose(2)
	f, _, err = b.OpenVolume(ctx, "disk", false)
	must(t, err)
	got := make([]byte, 4*unit)
	if _, err := f.ReadAt(ctx, got, 0); err != nil || string(got) != string(pattern(4*unit, 1)) {
		t.Fatalf("what was closed is lost: %v", err)
	}
	must(t, f.Close(ctx))

	// A client whose process is dead, and which has said nothing.
	child := exec.Command("true")
	must(t, child.Run())
	own := ownIdentity()
	dead := c.client(Options{})
	must(t, c.meta.EndSession(ctx, dead.sess.Load().id))
	dead.name = fmt.Sprintf("host:1 [%s/%s/%d/1]", own.boot, own.space, child.Process.Pid)
	must(t, dead.replaceSession(ctx, dead.sess.Load()))
	_, _, err = dead.OpenVolume(ctx, "disk", false)
	must(t, err)
	f, _, err = b.OpenVolume(ctx, "disk", false)
	must(t, err)
	must(t, f.Close(ctx))
}
