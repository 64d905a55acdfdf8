package client

import (
	"context"
	"testing"

	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// TestLinksOfForgottenNames: a client that takes one of two names of a file away, and does not know
// any more what that name stands for, still knows how many names are left.
func TestLinksOfForgottenNames(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 1, store.Options{})
	a, b := c.client(Options{Cred: &meta.Cred{}}), c.client(Options{Cred: &meta.Cred{}})
	listened(t, a)
	listened(t, b)
	must(t, a.Mkdir(ctx, "/d", 0o777))
	must(t, a.Symlink(ctx, "target", "/one"))
	for i, take := range []func() error{
		func() error { return a.Remove(ctx, "/d/two") },
		func() error { return a.Rename(ctx, "/other", "/d/two") },
	} {
		must(t, a.Symlink(ctx, "target", "/other"))
		must(t, a.Link(ctx, "/one", "/d/two"))
		if x, err := a.Lstat(ctx, "/one"); err != nil || x.Nlink != 2 {
			t.Fatalf("%d names, %v", x.Nlink, err)
		}
		must(t, b.Symlink(ctx, "x", "/d/"+string(rune('p'+i)))) // a forgets the names in d
		must(t, take())
		if x, err := a.Lstat(ctx, "/one"); err != nil || x.Nlink != 1 {
			t.Fatalf("way %d: %d names are left, %v", i, x.Nlink, err)
		}
		if i == 0 {
			must(t, a.Remove(ctx, "/other"))
		}
	}
}
