package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/bench"
	benchfs "github.com/sluice-storage/sluice/bench/fs"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
)

func newBenchFS() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "fs",
		Short: "Measure the client library and the mount",
		Long: `Starts a cluster in memory and measures the client library against plain Go TCP and, where
there is FUSE, the mount against a FUSE file system in memory.`,
		Example: `  sluice bench fs --quick
  sluice bench fs --json > fs.json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return f.benchFS()
		},
	}
	f.add(cmd)
	return cmd
}

// budget is that of benches with few cases.
func (f *benchFlags) budget() bench.Budget {
	if f.quick {
		return bench.Quick()
	}
	return bench.Full()
}

// benchFS starts a cluster in memory. Cases are run as they are made: each needs servers of its
// own.
func (f *benchFlags) benchFS() (err error) {
	dir, remove, err := tempIn("")
	if err != nil {
		return err
	}
	defer remove()
	ctx := f.cmd.Context()
	fuse := canMount()
	mnt := filepath.Join(dir, "mnt")
	url, stop, err := startBenchCluster(ctx, filepath.Join(dir, "cluster"), mnt, fuse)
	if err != nil {
		return err
	}
	defer stop()
	p, err := startPeer(ctx)
	if err != nil {
		return err
	}
	defer p.stop()
	conn, err := dialWith(ctx, url, client.Options{})
	if err != nil {
		return err
	}
	defer conn.close()
	file, err := conn.fs.Create(ctx, "/bench-client")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close(context.WithoutCancel(ctx))) }()
	cases, err := benchfs.ClientCases(ctx, file, p.info.Plain)
	if err != nil {
		return err
	}
	if !fuse {
		return f.measure(f.budget(), cases)
	}
	memory := filepath.Join(dir, "memory")
	if err := os.Mkdir(memory, 0o755); err != nil {
		return err
	}
	unmount, err := p.mountMemory(ctx, memory)
	if err != nil {
		return err
	}
	defer unmount()
	more, err := benchfs.MountCases(filepath.Join(mnt, "bench-mount"),
		filepath.Join(memory, "bench-mount"))
	if err != nil {
		return err
	}
	return f.measure(f.budget(), append(cases, more...))
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
	args := []string{"up", "--mem", "--dir", dir, "--listen", "127.0.0.1:0"}
	if fuse {
		args = append(args, "--mount", mnt)
	}
	cmd, url, err := startBenchUp(ctx, dir, args)
	return url, func() { stopChild(cmd) }, err
}

// startBenchUp runs `sluice up` for a cluster in dir as a child, and waits until it is ready.
func startBenchUp(ctx context.Context, dir string, args []string) (cmd *exec.Cmd, url string,
	err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	cmd = startChild(ctx, self, args...)
	log, err := os.Create(dir + ".log")
	if err != nil {
		return nil, "", err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	c := &cluster{dir: dir}
	for deadline := time.Now().Add(readyMax); ; time.Sleep(20 * time.Millisecond) {
		if url := c.readUp().URL; url != "" {
			return cmd, url, nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			stopChild(cmd)
			text, _ := os.ReadFile(dir + ".log")
			return nil, "", errs.Newf(errs.TimedOut, "bench", "", "the cluster does not start: %s", text)
		}
	}
}
