package client

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/procid"
	"github.com/sluice-storage/sluice/meta/store"
)

// TestVolumeHasOneWriter: a second client is refused until the first has closed the volume, which
// syncs it; or is dead.
func TestVolumeHasOneWriter(t *testing.T) {
	c := newCluster(t, 2, store.Options{Dead: procid.Dead})
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
	own := procid.Own()
	dead := c.client(Options{})
	dead.stop() // the dead do not listen
	dead.workers.Wait()
	must(t, c.meta.EndSession(ctx, dead.sess.Load().id))
	dead.name = fmt.Sprintf("host:1 [%s/%s/%d/1]", own.Boot, own.Space, child.Process.Pid)
	must(t, dead.replaceSession(ctx, dead.sess.Load()))
	_, _, err = dead.OpenVolume(ctx, "disk", false)
	must(t, err)
	f, _, err = b.OpenVolume(ctx, "disk", false)
	must(t, err)
	must(t, f.Close(ctx))
}
