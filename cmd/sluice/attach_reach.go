package main

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/nbd"
)

// What a device of a volume waits for longest is the cluster: the metadata service, then the I/O
// servers. Neither is waited for where something else can be done meanwhile.

// dialled is what became of reaching the cluster.
type dialled struct {
	conn *connection
	err  error
}

// reach begins to reach the cluster, while the process makes itself ready. The function that it
// returns ends that, if nobody has taken the connection.
func (a *attacher) reach(ctx context.Context) (end func()) {
	ctx, stop := context.WithCancel(ctx)
	come := make(chan dialled, 1)
	a.dialled = come
	go func() {
		c, err := a.dialNow(ctx)
		come <- dialled{c, err}
	}()
	return func() {
		stop()
		if a.dialled == nil {
			return
		}
		if d := <-a.dialled; d.err == nil {
			d.conn.close()
		}
	}
}

// dial takes the connection that reach has made, or makes one. What it opens outlives ctx.
func (a *attacher) dial(ctx context.Context) (*connection, error) {
	if a.dialled == nil {
		return a.dialNow(ctx)
	}
	select {
	case d := <-a.dialled:
		a.dialled = nil
		return d.conn, d.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (a *attacher) dialNow(ctx context.Context) (*connection, error) {
	f := &a.opt.url
	return dialBy(ctx, f.base(), &f.by, client.Options{Name: "attach " + a.spec.Name,
		WaitMax: patience(0), Logger: a.log, Buffers: boundClient(true).buffers})
}

// The reads of warm: how much each reads, and for how long they may hold up the end of the export.
const (
	warmBytes = 4 << 10
	warmMax   = 2 * time.Second
)

// warm reads the first and the last block of a volume, which the kernel looks at for partitions as
// soon as somebody opens the device: so the I/O servers that have them are reached while the kernel
// makes the device. What comes of it does not matter; whoever reads them in earnest is told.
func warm(exp nbd.Export) {
	size := exp.Size()
	n := min(warmBytes, size)
	for _, off := range []int64{0, size - n} {
		go func() {
			ctx, stop := context.WithTimeout(context.Background(), warmMax)
			defer stop()
			_ = exp.ReadAt(ctx, make([]byte, n), off)
		}()
	}
}
