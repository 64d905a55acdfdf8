package client

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// TestRecallDoesNotWaitForATruncation: a client cuts a file, and an I/O server takes its time. It
// gives the lease back meanwhile that another client asks for, and keeps its other ones; what it
// writes meanwhile does not bring the old length back.
func TestRecallDoesNotWaitForATruncation(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 1, withLongLeases(store.Options{}))
	fs, other := c.client(Options{}), c.client(Options{})
	listened(t, fs)
	f := create(t, fs, "f", 1)
	write(t, f, pattern(3*meta.SmallMax, 1), 0)
	came, goOn := make(chan struct{}, 1), make(chan struct{})
	c.setHook(func(k call) error {
		if k.op == iod.OpTruncate {
			select {
			case came <- struct{}{}:
			default:
			}
			<-goOn
		}
		return nil
	})
	cut := make(chan error, 1)
	go func() { cut <- f.Truncate(ctx, 10) }()
	<-came
	epoch := fs.leases.current()
	seen := make(chan error, 1)
	go func() {
		_, err := other.SetAttr(ctx, *other.opts.Cred, f.Ino(), meta.SetMode, meta.Attr{Mode: 0o600})
		seen <- err
	}()
	start := time.Now()
	eventually(t, func() bool {
		return f.node.state() == leaseNone && !f.node.recalling() || time.Since(start) > longLease/2
	})
	if f.node.state() != leaseNone {
		t.Error("the lease has not gone back")
	}
	if fs.leases.current() != epoch {
		t.Error("all leases are lost")
	}
	f.node.wrote(0, 3*meta.SmallMax, f.node.sequence()) // acknowledged just before the cut
	close(goOn)
	must(t, <-cut)
	must(t, <-seen)
	must(t, f.Close(ctx))
	for who, fs := range map[string]*FS{"the first": fs, "the other": other} {
		if a, err := fs.Stat(ctx, "/f"); err != nil || a.Size != 10 {
			t.Errorf("%s client sees %d bytes, %v", who, a.Size, err)
		}
	}
}
