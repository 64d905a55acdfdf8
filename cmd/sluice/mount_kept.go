package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/mount"
	"github.com/sluice-storage/sluice/mount/keeper"
)

// serveKept serves a mount for a keeper, which has started this process. Its errors are the
// keeper's to tell.
func serveKept(cmd *cobra.Command, o mountOptions) error {
	s, err := keeper.Join()
	if err != nil {
		return err
	}
	if err := serveFor(cmd.Context(), s, o, newLogger()); err != nil {
		what, advice := err.Error(), ""
		var h *hinted
		if errors.As(err, &h) {
			advice = h.hint
		} else {
			advice = nextStep(err)
		}
		s.Failed(what, advice)
		return &exitError{code: 1}
	}
	s.Ended()
	return nil
}

func serveFor(ctx context.Context, s *keeper.Served, o mountOptions, log *slog.Logger) error {
	opts, err := o.mountAs(log)
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	c := o.clientOptions(log)
	c.Identity, c.Succeeds = s.Table.Name(), s.Table.Sessions()
	c.BeforeSuccession = func(ctx context.Context) error { return mount.AwaitDisbelief(ctx, s.Table) }
	fresh := false
	if c.Journal, fresh, err = s.Table.Journal(); err != nil {
		return err
	}
	if fresh {
		log.Warn("the journal of the process before this one is of another version: names that it " +
			"had not told are lost, if it did not hand over")
	}
	o.keepTrying = o.keepTrying || s.Table.Greeted() // programs wait for it
	conn, err := dialForMount(ctx, o, c)
	if err != nil {
		return err
	}
	defer conn.close()
	kernel, err := s.Connection()
	if err != nil {
		return err
	}
	spareProcs(procsFUSE)
	m, err := mount.Attach(ctx, conn.fs, dir, kernel, s.Table, opts)
	_ = kernel.Close() // the server has its own
	if err != nil {
		return err
	}
	spareProcs(procsLeast)
	stop, err := o.serveWeb(conn, m, log)
	if err != nil {
		return errors.Join(err, m.Unmount())
	}
	defer stop()
	if err := s.Serving(o.text(dir)); err != nil {
		return errors.Join(err, m.Unmount())
	}
	return obey(ctx, s, m, log)
}

// handOverMax is how long it may take to make everything durable before another process takes over.
const handOverMax = 60 * time.Second

// obey does what the keeper wants, until the mount is gone. A process whose keeper has died gets a
// signal, which ends ctx.
func obey(ctx context.Context, s *keeper.Served, m *mount.Mounted, log *slog.Logger) error {
	gone := make(chan struct{})
	go func() {
		m.Wait()
		close(gone)
	}()
	for orders := s.Orders; ; {
		select {
		case <-gone:
			return nil
		case <-ctx.Done():
			err := m.Unmount()
			<-gone
			return err
		case order, ok := <-orders:
			switch {
			case !ok:
				orders = nil // the keeper is dead
			case order == keeper.Leave:
				m.Leave()
			case order == keeper.HandOver:
				limit, cancel := context.WithTimeout(ctx, handOverMax)
				err := m.HandOver(limit)
				cancel()
				if err != nil {
					log.Error("the mount was not handed over", "err", err)
					s.Failed(err.Error(), "")
					continue
				}
				// The session stays, so that the next process finds what is open. Nothing is closed:
				// no request that was not answered may end in another way.
				s.Handed()
				os.Exit(0)
			}
		}
	}
}
