package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/internal/memfuse"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
)

// peerInfo is what a peer of a bench tells about itself, as one line on its standard output.
type peerInfo struct {
	Echo  string `json:"echo"` // plain TCP, round trips
	Bulk  string `json:"bulk"` // plain TCP, bandwidth
	Walk  string `json:"walk"` // the same through more memory than a processor caches
	Iod   string `json:"iod"`  // an I/O server in memory
	Key   string `json:"key"`  // that server's, to sign capabilities with
	Mount string `json:"mount"`

	Control string `json:"control"` // does what bench net asks for
	Unix    string `json:"unix"`    // as Plain, by a unix socket

	Loop string `json:"loop"` // copies memory, for bench iod

	// For bench fabric and bench net.
	Plain  string            `json:"plain"`  // plain TCP, every size
	CPU    string            `json:"cpu"`    // tells the peer's processor time
	Fabric map[string]string `json:"fabric"` // by provider
}

func newBenchPeer() *cobra.Command {
	var (
		mountDir  string
		providers []string
		profiled  string
		iodDir    string
		loop      bool
	)
	cmd := &cobra.Command{
		Use:    "bench-peer",
		Short:  "The other process of a bench",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if mountDir != "" {
				return peerMount(cmd, mountDir)
			}
			if len(providers) > 0 {
				return peerFabric(cmd, providers)
			}
			if loop {
				return peerLoop(cmd)
			}
			done, err := profile(profiled)
			if err != nil {
				return err
			}
			if iodDir != "" {
				return errors.Join(peerIod(cmd, iodDir), done())
			}
			return errors.Join(peerNet(cmd), done())
		},
	}
	cmd.Flags().StringVar(&profiled, "profile", "", "write a processor profile there")
	cmd.Flags().StringVar(&iodDir, "iod", "", "start I/O servers for bench iod in this folder")
	cmd.Flags().BoolVar(&loop, "loop", false, "copy memory for bench iod")
	cmd.Flags().StringVar(&mountDir, "mount", "", "serve a FUSE file system in memory there")
	cmd.Flags().StringSliceVar(&providers, "fabric", nil,
		"serve bench fabric on these providers; certificates come on standard input")
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

// peerFabric is the other side of bench fabric.
func peerFabric(cmd *cobra.Command, providers []string) error {
	var creds benchCreds
	if err := json.NewDecoder(cmd.InOrStdin()).Decode(&creds); err != nil {
		return err
	}
	info := peerInfo{Fabric: map[string]string{}}
	plain, err := serveLoopback(&info.Plain, bench.ServePlain)
	if err != nil {
		return err
	}
	defer plain.Close()
	meter, err := serveLoopback(&info.CPU, bench.ServeCPU)
	if err != nil {
		return err
	}
	defer meter.Close()
	for _, name := range providers {
		domain, err := openProvider(name, &creds)
		if err != nil {
			return err
		}
		defer domain.Close()
		ln, err := listenProvider(name, domain)
		if err != nil {
			return err
		}
		info.Fabric[name] = ln.Addr().String()
		go bench.ServeFabric(cmd.Context(), domain, ln, func(err error) {
			fmt.Fprintln(cmd.ErrOrStderr(), "sluice: bench-peer: "+name+": "+err.Error())
		})
	}
	if err := tell(cmd, info); err != nil {
		return err
	}
	<-cmd.Context().Done()
	return nil
}

// serveLoopback serves plain TCP at a free port.
func serveLoopback(addr *string, serve func(net.Listener)) (net.Listener, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	*addr = ln.Addr().String()
	go serve(ln)
	return ln, nil
}

// peerNet serves everything that bench net talks to, and lives until its standard input ends or it
// is told to stop.
func peerNet(cmd *cobra.Command) error {
	info := peerInfo{}
	for _, plain := range []struct {
		addr  *string
		serve func(net.Listener)
	}{{&info.Echo, bench.ServeEcho}, {&info.Bulk, bench.ServeBulk}, {&info.Walk, bench.ServeWalk},
		{&info.Plain, bench.ServePlain}, {&info.Control, serveNet(cmd)}} {
		ln, err := serveLoopback(plain.addr, plain.serve)
		if err != nil {
			return err
		}
		defer ln.Close()
	}
	local, err := net.Listen("unix", fmt.Sprintf("@sluice-bench-plain-%d", os.Getpid()))
	if err != nil {
		return err
	}
	defer local.Close()
	go bench.ServePlain(local)
	info.Unix = local.Addr().String()
	domain, err := tcp.Open(tcp.Options{})
	if err != nil {
		return err
	}
	defer domain.Close()
	network, err := peer.New(&peer.Providers{Domains: []fabric.Domain{domain}}, msg.Options{})
	if err != nil {
		return err
	}
	defer network.Close()
	var key capability.Key
	rand.Read(key[:])
	store, err := openMemoryStore(0)
	if err != nil {
		return err
	}
	defer store.Close()
	s, err := serveIod(network, iodParts{id: 1, key: key, store: store,
		plan: memoryPlan{cache: 256 << 20}, listen: "127.0.0.1:0", log: newLogger()})
	if err != nil {
		return err
	}
	defer s.close(cmd.Context())
	info.Iod, info.Key = s.addr(), hex.EncodeToString(key[:])
	if err := tell(cmd, info); err != nil {
		return err
	}
	<-cmd.Context().Done()
	return nil
}

// serveNet does what bench net asks for.
func serveNet(cmd *cobra.Command) func(net.Listener) {
	return func(ln net.Listener) {
		bench.ServeNet(cmd.Context(), ln, openNet(), func(err error) {
			fmt.Fprintln(cmd.ErrOrStderr(), "sluice: bench-peer: "+err.Error())
		})
	}
}

func tell(cmd *cobra.Command, info peerInfo) error {
	return json.NewEncoder(cmd.OutOrStdout()).Encode(info)
}

// benchPeer is a running child of a bench.
type benchPeer struct {
	cmd  *exec.Cmd
	info peerInfo
	free func() // lets go of the thread that started it
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

// startFabricPeer runs the other side of bench fabric.
func startFabricPeer(ctx context.Context, providers []string, ca *benchCA) (*benchPeer, error) {
	creds, err := ca.issue("peer")
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(creds)
	if err != nil {
		return nil, err
	}
	return startPeerWith(ctx, text, "--fabric", strings.Join(providers, ","))
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
