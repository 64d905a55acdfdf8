package tcp

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// peerProcess is this test binary again, in a role of TestPeer.
type peerProcess struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	addr string
}

func startPeerProcess(t testing.TB, attr *syscall.SysProcAttr, role string) *peerProcess {
	t.Helper()
	p := &peerProcess{cmd: exec.Command(os.Args[0], "-test.run=^TestPeer$")}
	p.cmd.Env = append(os.Environ(), peerEnv+"="+role)
	p.cmd.SysProcAttr = attr
	var err error
	p.in, err = p.cmd.StdinPipe()
	fatal(t, err)
	out, err := p.cmd.StdoutPipe()
	fatal(t, err)
	p.out = bufio.NewReader(out)
	fatal(t, p.cmd.Start())
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	return p
}

// readAddr waits until the peer listens.
func (p *peerProcess) readAddr(t testing.TB) {
	t.Helper()
	line, err := p.out.ReadString('\n')
	fatal(t, err)
	p.addr = strings.TrimSpace(line)
}

// keys is what a peer elsewhere needs to be believed.
type keys struct{ Root, Cert, Key []byte }

// say hands the peer its keys, once there is a network.
func (p *peerProcess) say(t *testing.T, a *authority) {
	t.Helper()
	c := a.issue(t, "right", nil)
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	fatal(t, err)
	fatal(t, json.NewEncoder(p.in).Encode(keys{a.cert.Raw, c.Certificate[0], key}))
	p.readAddr(t)
}

// serveElsewhere is the peer in a network of its own, whose interface is eth0.
func serveElsewhere(t *testing.T, host string) {
	var k keys
	fatal(t, json.NewDecoder(os.Stdin).Decode(&k))
	ip(t, "addr", "add", host+"/24", "dev", "eth0")
	ip(t, "link", "set", "eth0", "up")
	root, err := x509.ParseCertificate(k.Root)
	fatal(t, err)
	key, err := x509.ParsePKCS8PrivateKey(k.Key)
	fatal(t, err)
	a := &authority{roots: x509.NewCertPool()}
	a.roots.AddCert(root)
	sec := a.with(&tls.Certificate{Certificate: [][]byte{k.Cert}, PrivateKey: key})
	servePeer(t, newBenchEndWith(t, Options{Security: sec}), host)
}

// flood posts writes without end until the endpoint is dead, and returns how it died.
func flood(t *testing.T, e *benchEnd, rem fabric.Remote, limit time.Duration) errs.Kind {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	wr := fabric.WR{Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Remote: rem}
	wr.Local = []fabric.Sge{{Reg: e.reg, Buf: e.reg.Bytes()[:rem.Len]}}
	outstanding := 0
	for {
		for outstanding < 8 && e.ep.Post([]fabric.WR{wr}) == nil {
			outstanding++
		}
		n, err := e.cq.Wait(ctx, e.dst)
		if err != nil {
			t.Fatalf("waiting for the end: %v", err)
		}
		for _, c := range e.dst[:n] {
			if c.Err != nil {
				return c.ErrKind()
			}
			if c.Op != fabric.OpRecv {
				outstanding--
			}
		}
	}
}

// TestKilledPeers kills the other process in the middle of transfers, at random moments.
func TestKilledPeers(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	for range rounds {
		peer := startPeerProcess(t, nil, "fabric")
		peer.readAddr(t)
		e, rem := dialPeerAt(t, newBenchEnd(t), peer.addr)
		pause := time.Duration(rng.IntN(20_000)) * time.Microsecond
		time.AfterFunc(pause, func() { _ = peer.cmd.Process.Kill() })
		if kind := flood(t, e, rem, time.Minute); kind != errs.Disconnected {
			t.Fatalf("killed after %v: %v", pause, kind)
		}
		fatal(t, e.ep.Close())
	}
}

// TestSilentPeers cuts the cable to another network: nobody says goodbye. It needs the right to
// make networks.
func TestSilentPeers(t *testing.T) {
	if testing.Short() || os.Getuid() != 0 {
		t.Skip("makes a network of its own: needs root, and a few seconds")
	}
	a := newAuthority(t)
	for name, idle := range map[string]bool{"while sending": false, "while idle": true} {
		t.Run(name, func(t *testing.T) {
			subnet := 1 + rand.IntN(250)
			link := fmt.Sprintf("slc%d-%d", os.Getpid()%100000, subnet)
			there := fmt.Sprintf("198.18.%d.2", subnet)
			peer := startPeerProcess(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET},
				"fabric at "+there)
			ip(t, "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns",
				fmt.Sprint(peer.cmd.Process.Pid))
			t.Cleanup(func() { ip(t, "link", "del", link) })
			ip(t, "addr", "add", fmt.Sprintf("198.18.%d.1/24", subnet), "dev", link)
			ip(t, "link", "set", link, "up")
			peer.say(t, a) // its network is there now
			sec := a.security(t, "left")
			sec.ServerName = "127.0.0.1" // what the peer's certificate says
			opts := Options{Security: sec, PeerTimeout: 2 * time.Second}
			e, rem := dialPeerAt(t, newBenchEndWith(t, opts), peer.addr)
			time.AfterFunc(50*time.Millisecond, func() { ip(t, "link", "set", link, "down") })
			begin := time.Now()
			var kind errs.Kind
			if idle {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				kind = errs.KindOf(e.await(ctx))
			} else {
				kind = flood(t, e, rem, time.Minute)
			}
			if kind != errs.Disconnected {
				t.Fatalf("the end: %v", kind)
			}
			t.Logf("noticed after %v", time.Since(begin).Round(time.Millisecond))
		})
	}
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Errorf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}
