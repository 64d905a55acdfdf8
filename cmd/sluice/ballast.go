package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// The folder run needs a few blocks for what is true while a cluster runs, on a full disk too: a
// cluster that cannot be started or asked there cannot be emptied. A file holds them.
const (
	runBallast      = "ballast"
	runBallastBytes = 256 << 10 // a block for each of some sixty small files
	ballastEvery    = 5 * time.Second
)

func (c *cluster) ballastFile() string { return c.path("run", runBallast) }

// keepBallast takes the blocks, unless they are there. Where that fails there is nothing to keep.
func (c *cluster) keepBallast() {
	name := c.ballastFile()
	var st unix.Stat_t
	if unix.Stat(name, &st) == nil && st.Blocks*512 >= runBallastBytes {
		return
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	if unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, runBallastBytes) != nil {
		_ = os.Remove(name)
	}
}

// holdBallast keeps the blocks until ctx ends.
func (c *cluster) holdBallast(ctx context.Context) {
	tick := time.NewTicker(ballastEvery)
	defer tick.Stop()
	for {
		c.keepBallast()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// withBallast writes something into a cluster's folder, or into its folder run, and gives the
// ballast up for it if there is no space.
func withBallast(dir string, write func() error) error {
	err := write()
	if !errors.Is(err, unix.ENOSPC) {
		return err
	}
	for _, name := range []string{filepath.Join(dir, runBallast),
		filepath.Join(dir, "run", runBallast)} {
		if os.Remove(name) == nil {
			return write()
		}
	}
	return err
}
