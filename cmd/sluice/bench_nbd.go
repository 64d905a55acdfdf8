package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/errs"
)

// benchNBD holds a block device in memory against nbdkit's, fio being the client of both.
func benchNBD(ctx context.Context, b bench.Budget, dir string) ([]bench.Row, error) {
	for _, tool := range []string{"fio", "nbdkit"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, hint(err, "Install %s (Debian: apt-get install %s), or run: make deps", tool, tool)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ours, theirs := filepath.Join(dir, "sluice.sock"), filepath.Join(dir, "nbdkit.sock")
	size := fmt.Sprint(bench.DeviceBytes)
	a, err := startServer(ctx, ours, self, "nbd", "--listen", "unix:"+ours,
		"--export", "name=m,mem="+size)
	if err != nil {
		return nil, err
	}
	defer stopChild(a)
	k, err := startServer(ctx, theirs, "nbdkit", "--foreground", "--unix", theirs, "--exportname", "m",
		"memory", size)
	if err != nil {
		return nil, err
	}
	defer stopChild(k)
	oursURI, theirsURI := "nbd+unix:///m?socket="+ours, "nbd+unix:///m?socket="+theirs
	for _, uri := range []string{oursURI, theirsURI} {
		if err := bench.FillDevice(ctx, uri); err != nil {
			return nil, err
		}
	}
	const ceiling = "nbdkit memory"
	reads := func(name, metric string, size int64, depth int) bench.Case {
		return bench.Case{Bench: "nbd", Name: name, Size: size, Depth: depth, Metric: metric,
			Ceiling: bench.DeviceRead(ceiling, theirsURI, metric, size, depth),
			Others:  []bench.Contender{bench.DeviceRead("memory export", oursURI, metric, size, depth)}}
	}
	return bench.RunAll(ctx, b, []bench.Case{
		reads("sequential read", bench.Bandwidth, 1<<20, 16),
		reads("random read", bench.Rate, 4<<10, 16),
	})
}

// startServer starts a program and waits until its socket is there.
func startServer(ctx context.Context, sock, name string, args ...string) (*exec.Cmd, error) {
	cmd := startChild(ctx, name, args...)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		_, err := os.Stat(sock)
		if err == nil {
			return cmd, nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			stopChild(cmd)
			return nil, errs.New(errs.TimedOut, "bench nbd", name, err)
		}
	}
}
