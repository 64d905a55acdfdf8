package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
)

const fsBytes = 1 << 20

// benchFS starts a cluster in memory and measures the client library and, where there is FUSE, the
// mount.
func benchFS(ctx context.Context, b bench.Budget, dir string) ([]bench.Row, error) {
	fuse := canMount()
	mnt := filepath.Join(dir, "mnt")
	url, stop, err := startBenchCluster(ctx, filepath.Join(dir, "cluster"), mnt, fuse)
	if err != nil {
		return nil, err
	}
	defer stop()
	rows, err := benchClient(ctx, b, url)
	if err != nil || !fuse {
		return rows, err
	}
	more, err := benchMount(ctx, b, mnt, filepath.Join(dir, "memory"))
	return append(rows, more...), err
}

func canMount() bool {
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// startBenchCluster runs `sluice up --mem` as a child.
func startBenchCluster(ctx context.Context, dir, mnt string, fuse bool) (url string, stop func(),
	err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	args := []string{"up", "--mem", "--dir", dir, "--listen", "127.0.0.1:0"}
	if fuse {
		args = append(args, "--mount", mnt)
	}
	cmd := startChild(ctx, self, args...)
	log, err := os.Create(dir + ".log")
	if err != nil {
		return "", nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() { stopChild(cmd) }
	c := &cluster{dir: dir}
	for deadline := time.Now().Add(readyMax); ; time.Sleep(20 * time.Millisecond) {
		if url := c.readUp().URL; url != "" {
			return url, stop, nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			stop()
			text, _ := os.ReadFile(dir + ".log")
			return "", nil, errs.Newf(errs.TimedOut, "bench fs", "", "the cluster does not start: %s",
				text)
		}
	}
}

// benchClient holds the client library against plain TCP.
func benchClient(ctx context.Context, b bench.Budget, url string) ([]bench.Row, error) {
	p, err := startPeer(ctx)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	conn, err := dialWith(ctx, url, client.Options{})
	if err != nil {
		return nil, err
	}
	defer conn.close()
	f, err := conn.fs.Create(ctx, "/bench-client")
	if err != nil {
		return nil, err
	}
	defer f.Close(context.WithoutCancel(ctx))
	buf := make([]byte, fsBytes)
	for off := int64(0); off < bench.FileBytes; off += fsBytes {
		if _, err := f.WriteAt(ctx, buf, off); err != nil {
			return nil, err
		}
	}
	ceiling := bench.PlainBulk(p.info.Bulk, fsBytes, bulkDepth)
	return bench.RunAll(ctx, b, []bench.Case{
		{Bench: "fs", Name: "client, sequential read", Size: fsBytes, Depth: 1,
			Metric: bench.Bandwidth, Ceiling: ceiling,
			Others: []bench.Contender{bench.ClientRead(f, fsBytes, 1), bench.ClientRead(f, fsBytes, 4)}},
		{Bench: "fs", Name: "client, sequential write", Size: fsBytes, Depth: 1,
			Metric: bench.Bandwidth, Ceiling: ceiling,
			Others: []bench.Contender{bench.ClientWrite(f, fsBytes, 1), bench.ClientWrite(f, fsBytes, 4)}},
	})
}

// benchMount holds the mount against a FUSE file system that serves memory.
func benchMount(ctx context.Context, b bench.Budget, mnt, memory string) ([]bench.Row, error) {
	if err := os.Mkdir(memory, 0o755); err != nil {
		return nil, err
	}
	p, err := startPeer(ctx, "--mount", memory)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	ours, theirs := filepath.Join(mnt, "bench-mount"), filepath.Join(memory, "bench-mount")
	for _, name := range []string{ours, theirs} {
		if err := bench.FillFile(name); err != nil {
			return nil, err
		}
	}
	const ceiling = "FUSE in memory"
	return bench.RunAll(ctx, b, []bench.Case{
		{Bench: "fs", Name: "mount, sequential read", Size: fsBytes, Depth: 1, Metric: bench.Bandwidth,
			Ceiling: bench.FileRead(ceiling, theirs, fsBytes),
			Others:  []bench.Contender{bench.FileRead("mount", ours, fsBytes)}},
		{Bench: "fs", Name: "mount, sequential write", Size: fsBytes, Depth: 1, Metric: bench.Bandwidth,
			Ceiling: bench.FileWrite(ceiling, theirs, fsBytes),
			Others:  []bench.Contender{bench.FileWrite("mount", ours, fsBytes)}},
	})
}
