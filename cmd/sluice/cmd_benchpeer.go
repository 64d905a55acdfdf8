package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	benchfabric "github.com/sluice-storage/sluice/bench/fabric"
	benchiod "github.com/sluice-storage/sluice/bench/iod"
	benchnet "github.com/sluice-storage/sluice/bench/net"
	"github.com/sluice-storage/sluice/bench/partner"
	"github.com/sluice-storage/sluice/bench/plain"
	benchtransfer "github.com/sluice-storage/sluice/bench/transfer"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/memfuse"
)

func newBenchPeer() *cobra.Command {
	var profiled, dir string
	cmd := &cobra.Command{
		Use:    "bench-peer",
		Short:  "The other process of a bench",
		Long:   "Does what a bench asks for. Certificates, if it needs any, come on standard input.",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			done, err := profile(profiled)
			if err != nil {
				return err
			}
			return errors.Join(servePeer(cmd, dir), done())
		},
	}
	cmd.Flags().StringVar(&profiled, "profile", "", "write a processor profile there")
	cmd.Flags().StringVar(&dir, "dir", "", "the folder for I/O servers")
	return cmd
}

// servePeer serves everything that benches talk to, tells where as one line on its standard output,
// and lives until it is told to stop.
func servePeer(cmd *cobra.Command, dir string) error {
	var creds benchCreds
	err := json.NewDecoder(cmd.InOrStdin()).Decode(&creds)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	note := func(err error) {
		fmt.Fprintln(cmd.ErrOrStderr(), "sluice: bench-peer: "+err.Error())
	}
	open := benchOpener(&creds)
	sites := &iodSites{dir: dir, open: open}
	undone := make(chan struct{})
	var info partner.Info
	for _, s := range []struct {
		network, listen string
		addr            *string
		serve           func(net.Listener)
	}{
		{"tcp", "127.0.0.1:0", &info.Plain, plain.Serve},
		{"unix", fmt.Sprintf("@sluice-bench-plain-%d", os.Getpid()), &info.Unix, plain.Serve},
		{"tcp", "127.0.0.1:0", &info.Control, func(ln net.Listener) {
			defer close(undone)
			partner.Serve(cmd.Context(), ln, note, benchfabric.Jobs(open), benchnet.Jobs(open),
				benchiod.Jobs(sites.start), benchtransfer.Jobs(open),
				partner.Jobs{doMount: partner.On(mountMemory)})
		}},
	} {
		ln, err := net.Listen(s.network, s.listen)
		if err != nil {
			return err
		}
		defer ln.Close()
		*s.addr = ln.Addr().String()
		go s.serve(ln)
	}
	if err := json.NewEncoder(cmd.OutOrStdout()).Encode(info); err != nil {
		return err
	}
	<-cmd.Context().Done()
	select {
	case <-undone:
		return nil
	case <-time.After(peerEnd):
		return errs.Newf(errs.TimedOut, "bench-peer", "", "servers of the bench do not close")
	}
}

// peerEnd is how long what the other process has opened may take to close when the bench ends.
const peerEnd = 10 * time.Second

const doMount = "mount" // serve a FUSE file system in memory: the ceiling of the mount

func mountMemory(s *partner.Session, dir string) (none struct{}, err error) {
	unmount, err := memfuse.Mount(dir)
	if err == nil {
		s.Later(func() error { unmount(); return nil })
	}
	return none, err
}

// benchPeer is a running child of a bench.
type benchPeer struct {
	cmd  *exec.Cmd
	info partner.Info
	free func() // lets go of the thread that started it
}

// mountMemory has the child serve a file system until unmount.
func (p *benchPeer) mountMemory(ctx context.Context, dir string) (unmount func(), err error) {
	c, err := partner.Dial(ctx, p.info.Control)
	if err != nil {
		return nil, err
	}
	unmount = func() { _ = c.Close() } // the child unmounts when the connection ends
	if err := c.Ask(doMount, dir, &struct{}{}); err != nil {
		unmount()
		return nil, err
	}
	return unmount, nil
}

// startKept starts a child from a thread that lives until free is called. A child of startChild is
// ended by the end of the thread that started it, and threads that package msg polls on do end.
func startKept(cmd *exec.Cmd) (free func(), err error) {
	started, over := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		started <- cmd.Start()
		<-over
	}()
	return func() { close(over) }, <-started
}

// startChild runs this program, or another, for as long as the bench runs.
func startChild(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	return cmd
}

// stopChild ends a child in order.
func stopChild(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait() // how it ended is of no interest
}

// startPeer runs a bench-peer and reads what it tells.
func startPeer(ctx context.Context, args ...string) (*benchPeer, error) {
	return startPeerWith(ctx, nil, args...)
}

// startPeerWith hands it something on its standard input.
func startPeerWith(ctx context.Context, in []byte, args ...string) (*benchPeer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := startChild(ctx, self, append([]string{"bench-peer"}, args...)...)
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	free, err := startKept(cmd)
	if err != nil {
		free()
		return nil, err
	}
	p := &benchPeer{cmd: cmd, free: free}
	if err := json.NewDecoder(out).Decode(&p.info); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *benchPeer) stop() {
	stopChild(p.cmd)
	p.free()
}
