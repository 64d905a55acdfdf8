package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	benchnbd "github.com/sluice-storage/sluice/bench/nbd"
	"github.com/sluice-storage/sluice/errs"
)

func newBenchNBD() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "nbd",
		Short: "Measure a block device in memory against nbdkit",
		Long: `Measures a block device in memory against nbdkit's memory plugin, fio being the client of
both. It needs fio and nbdkit.`,
		Example: `  sluice bench nbd --quick`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return f.benchNBD()
		},
	}
	f.add(cmd)
	return cmd
}

// benchNBD starts both servers.
func (f *benchFlags) benchNBD() error {
	for _, tool := range []string{"fio", "nbdkit"} {
		if _, err := exec.LookPath(tool); err != nil {
			return hint(err, "Install %s (Debian: apt-get install %s), or run: make deps", tool, tool)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, remove, err := tempIn("")
	if err != nil {
		return err
	}
	defer remove()
	ctx := f.cmd.Context()
	ours, theirs := filepath.Join(dir, "sluice.sock"), filepath.Join(dir, "nbdkit.sock")
	size := fmt.Sprint(benchnbd.DeviceBytes)
	a, err := startServer(ctx, ours, self, "nbd", "--listen", "unix:"+ours,
		"--export", "name=m,mem="+size)
	if err != nil {
		return err
	}
	defer stopChild(a)
	k, err := startServer(ctx, theirs, "nbdkit", "--foreground", "--unix", theirs, "--exportname", "m",
		"memory", size)
	if err != nil {
		return err
	}
	defer stopChild(k)
	cases, err := benchnbd.Cases(ctx, "nbd+unix:///m?socket="+ours, "nbd+unix:///m?socket="+theirs)
	if err != nil {
		return err
	}
	return f.measure(f.budget(), cases)
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
