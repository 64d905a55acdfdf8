package systest

import (
	"context"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/shm"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/iod/iodtest"
	"github.com/sluice-storage/sluice/iod/remote"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// ioServer is the only I/O server of a cluster, and what it takes to ask it without the metadata
// service: the cluster's key signs capabilities.
type ioServer struct {
	*cluster
	t   *testing.T
	key capability.Key
}

func startIod(t *testing.T, flags ...string) *ioServer {
	t.Helper()
	s := &ioServer{t: t, cluster: startCluster(t, clusterOptions{iods: 1, extra: flags})}
	text, err := os.ReadFile(filepath.Join(s.dir, "cluster.key"))
	must(t, err)
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	must(t, err)
	s.key = capability.Key(key).ServerKey(1)
	return s
}

// resolve asks the cluster where the server is. It is asked before each attempt to connect, and a
// server that was killed is elsewhere when it is back.
func (s *ioServer) resolve(context.Context, uint32) (string, error) {
	st, err := s.state()
	if err == nil && (len(st.Servers) == 0 || st.Servers[0].Addr == "") {
		err = errs.Newf(errs.Again, "systest", "", "the server has no address")
	}
	if err != nil {
		return "", errs.New(errs.Again, "systest", "", err)
	}
	return st.Servers[0].Addr, nil
}

// pid is the server's process.
func (s *ioServer) pid() int {
	st, err := s.state()
	must(s.t, err)
	for _, p := range st.Processes {
		if strings.HasPrefix(p.Name, "iod") {
			return p.PID
		}
	}
	return 0
}

// kill ends the server as kill -9 does, and returns when the process is gone.
func (s *ioServer) kill() {
	pid := s.pid()
	if pid <= 0 {
		return // it is being started
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	for range 12000 {
		if syscall.Kill(pid, 0) != nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	s.t.Errorf("process %d does not die", pid)
}

func (s *ioServer) target(session uint64, id stripe.ObjectID, r capability.Rights,
	trunc uint64) iod.Target {
	c := capability.Capability{File: id.File, Gen: id.Gen, Rights: r, Session: session, Server: 1,
		Expiry: time.Now().Add(capability.TTLMax)}
	return iod.Target{Server: 1, Object: id, Cap: s.key.Sign(&c),
		Stamp: wire.Stamp{Session: session, Gen: id.Gen, TruncSeq: trunc}}
}

// visitor is a client of the server.
type visitor struct {
	*remote.Remote
	ended sync.Once
	end   func()
}

// vanish ends it without a word.
func (v *visitor) vanish() { v.ended.Do(v.end) }

// join makes a client by the best way that there is, or by tcp alone.
func (s *ioServer) join(near bool) *visitor {
	far, err := tcp.Open(tcp.Options{Secret: &tcp.Secret{}})
	must(s.t, err)
	domains := []fabric.Domain{far}
	if near {
		d, err := shm.Open(shm.Options{})
		must(s.t, err)
		domains = []fabric.Domain{d, far}
	}
	network, err := peer.New(&peer.Providers{Domains: domains}, msg.Options{})
	must(s.t, err)
	pool := peer.NewPool(network, s.resolve)
	v := &visitor{Remote: remote.New(pool, remote.Options{})}
	v.end = func() {
		_ = network.Close()
		_ = pool.Close()
		_ = v.Close()
		for _, d := range domains {
			_ = d.Close()
		}
	}
	s.t.Cleanup(v.vanish)
	return v
}

// site is the server as a crowd sees it. Who restarts it is the supervisor.
func (s *ioServer) site() iodtest.Site {
	var n atomic.Int64
	return iodtest.Site{
		Join: func(uint64) (iodtest.Client, func()) {
			v := s.join(n.Add(1)%2 == 0)
			return v, v.vanish
		},
		Target: s.target, Kill: s.kill, Start: func() {},
	}
}
