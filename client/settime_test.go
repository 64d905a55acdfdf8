package client

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/meta/store"
)

// TestMovingOutKeepsATimeThatWasSet: what moves to the servers unwritten was not written then.
func TestMovingOutKeepsATimeThatWasSet(t *testing.T) {
	ctx := context.Background()
	for _, written := range []bool{false, true} {
		c := newCluster(t, 1, store.Options{})
		fs := c.client(Options{})
		f := createSmall(t, fs, "f", 1)
		if written {
			write(t, f, []byte("content"), 0)
		}
		set := time.Unix(763854103, 763854103)
		must(t, fs.Chtimes(ctx, "/f", set, set))
		must(t, fs.moveOut(ctx, f))
		a, err := c.client(Options{}).Stat(ctx, "/f")
		must(t, err)
		if !a.Mtime.Time().Equal(set) {
			t.Errorf("written before: %v: %v", written, a.Mtime)
		}
		must(t, f.Close(ctx))
	}
}
