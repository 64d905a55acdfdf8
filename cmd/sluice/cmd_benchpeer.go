package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/internal/memfuse"
	"github.com/sluice-storage/sluice/msg"
)

// peerInfo is what a peer of a bench tells about itself, as one line on its standard output.
type peerInfo struct {
	Echo  string `json:"echo"` // plain TCP, round trips
	Bulk  string `json:"bulk"` // plain TCP, bandwidth
	Walk  string `json:"walk"` // the same through more memory than a processor caches
	Msg   string `json:"msg"`  // package msg, round trips
	Iod   string `json:"iod"`  // an I/O server in memory
	Key   string `json:"key"`  // that server's, to sign capabilities with
	Mount string `json:"mount"`
}

func newBenchPeer() *cobra.Command {
	var mountDir string
	cmd := &cobra.Command{
		Use:    "bench-peer",
		Short:  "The other process of a bench",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if mountDir != "" {
				return peerMount(cmd, mountDir)
			}
			return peerNet(cmd)
		},
	}
	cmd.Flags().StringVar(&mountDir, "mount", "", "serve a FUSE file system in memory there")
	return cmd
}

// peerMount is the ceiling of the mount.
func peerMount(cmd *cobra.Command, dir string) error {
	unmount, err := memfuse.Mount(dir)
	if err != nil {
		return err
	}
	defer unmount()
	if err := tell(cmd, peerInfo{Mount: dir}); err != nil {
		return err
	}
	<-cmd.Context().Done()
	return nil
}

// peerNet serves everything that bench net talks to, and lives until its standard input ends or it
// is told to stop.
func peerNet(cmd *cobra.Command) error {
	info := peerInfo{}
	for _, plain := range []struct {
		addr  *string
		serve func(net.Listener)
	}{{&info.Echo, bench.ServeEcho}, {&info.Bulk, bench.ServeBulk}, {&info.Walk, bench.ServeWalk}} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer ln.Close()
		*plain.addr = ln.Addr().String()
		go plain.serve(ln)
	}
	domain, err := tcp.Open(tcp.Options{})
	if err != nil {
		return err
	}
	defer domain.Close()
	node, err := msg.NewNode(msg.Options{Domain: domain})
	if err != nil {
		return err
	}
	defer node.Close()
	echoer, err := node.Serve("127.0.0.1:0", bench.EchoHandler(), msg.ServeOptions{})
	if err != nil {
		return err
	}
	var key capability.Key
	rand.Read(key[:])
	store, err := openMemoryStore(0)
	if err != nil {
		return err
	}
	defer store.Close()
	s, err := serveIod(node, iodParts{id: 1, key: key, store: store, domain: domain,
		cacheBytes: 256 << 20, listen: "127.0.0.1:0", log: newLogger()})
	if err != nil {
		return err
	}
	defer s.close(cmd.Context())
	info.Msg, info.Iod, info.Key = echoer.Addr(), s.addr(), hex.EncodeToString(key[:])
	if err := tell(cmd, info); err != nil {
		return err
	}
	<-cmd.Context().Done()
	return nil
}

func tell(cmd *cobra.Command, info peerInfo) error {
	return json.NewEncoder(cmd.OutOrStdout()).Encode(info)
}

// peer is a running child of a bench.
type peer struct {
	cmd  *exec.Cmd
	info peerInfo
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
func startPeer(ctx context.Context, args ...string) (*peer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := startChild(ctx, self, append([]string{"bench-peer"}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &peer{cmd: cmd}
	if err := json.NewDecoder(out).Decode(&p.info); err != nil {
		stopChild(cmd)
		return nil, err
	}
	return p, nil
}

func (p *peer) stop() { stopChild(p.cmd) }
