//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// TestEveryDevice has one domain listen on all of its devices, connects over each of them, and has
// all endpoints of a side share one queue.
func TestEveryDevice(t *testing.T) {
	address(t)
	a, b := newSide(t, Options{}, fabric.CQOptions{}), newSide(t, Options{}, fabric.CQOptions{})
	l, err := b.dom.Connector().Listen(":0")
	fatal(t, err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	fatal(t, err)
	devices, err := b.dom.Connector().Devices()
	fatal(t, err)
	used := map[string]bool{}
	for i, dev := range devices {
		if dev.Name == "" || dev.Port < 1 || dev.MTU < 256 {
			t.Errorf("device %+v", dev)
		}
		if !dev.Up || len(dev.Addrs) == 0 || net.ParseIP(dev.Addrs[0]).To4() == nil {
			continue
		}
		r := &rig{t: t, a: a, b: b, l: l}
		a.ep, b.ep = r.connectTo(net.JoinHostPort(dev.Addrs[0], port))
		for _, s := range []*side{a, b} {
			if !strings.HasPrefix(s.ep.Name(), "verbs "+dev.Name+" ") {
				t.Errorf("the endpoint to %s is %s", dev.Addrs[0], s.ep.Name())
			}
		}
		used[dev.Name] = true
		rem := b.grant(0, 100, fabric.RemoteWrite)
		copy(a.mem, dev.Name)
		fatal(t, a.ep.Post([]fabric.WR{a.wr(fabric.OpWrite, uint64(i), 0, rem)}))
		wants(t, a.nextSend(uint64(i)), errs.OK)
		if !bytes.HasPrefix(b.mem, []byte(dev.Name)) {
			t.Errorf("%s brought %q", dev.Name, b.mem[:10])
		}
		b.reg.Revoke(rem)
	}
	t.Logf("%d of %+v", len(used), devices)
}

// TestRefusalsAreLoggedOnce dials several times and is refused each time.
func TestRefusalsAreLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	opts := Options{
		Tokens: fabric.NewTokens(4), Log: slog.New(slog.NewTextHandler(&log, nil)),
	}
	addr := net.JoinHostPort(address(t), "0")
	a, b := newSide(t, Options{}, fabric.CQOptions{}), newSide(t, opts, fabric.CQOptions{})
	l, err := b.dom.Connector().Listen(addr)
	fatal(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for range 3 {
		refused := make(chan error, 1)
		go func() {
			_, err := l.Accept(ctx, func(fabric.Peer) (fabric.EndpointConfig, error) {
				return b.config(), nil
			})
			refused <- err
		}()
		_, err := a.dom.Connector().Dial(ctx, l.Addr().String(), a.config())
		if errs.KindOf(err) != errs.Perm {
			t.Errorf("Dial without a token: %v", err)
		}
		if err := <-refused; errs.KindOf(err) != errs.Perm {
			t.Errorf("Accept of a peer without a token: %v", err)
		}
	}
	text := log.String()
	if strings.Count(text, "a peer was refused") != 1 || !strings.Contains(text, "token") {
		t.Errorf("the log:\n%s", text)
	}
}

// TestConnectionsLeaveNothing counts the kernel's objects before and after connections that were
// refused an access and such that were left with a grant.
func TestConnectionsLeaveNothing(t *testing.T) {
	r := newRig(t, Options{})
	count := func() int { return strings.Count(leftovers(), "\n") }
	r.reconnect()
	before := count()
	for range 10 {
		rem := r.b.grant(0, 64, fabric.RemoteRead)
		fatal(t, r.a.ep.Post([]fabric.WR{r.a.wr(fabric.OpWrite, 1, 0, rem)})) // refused
		wants(t, r.a.nextSend(1), errs.Perm)
		r.reconnect()
		r.b.grant(0, 64, fabric.RemoteWrite) // never revoked
		r.reconnect()
	}
	if after := count(); after > before || before == 0 {
		t.Errorf("%d objects of the kernel before, %d after:\n%s", before, after, leftovers())
	}
}
