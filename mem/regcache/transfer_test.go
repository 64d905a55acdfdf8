package regcache

import (
	"bytes"
	"context"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/mem"
)

// peer is one end of a connection, with memory and a cache for it.
type peer struct {
	cache *Cache
	cq    fabric.CQ
	ep    fabric.Endpoint
	mem   []byte
}

func newPeer(t *testing.T, d fabric.Domain) *peer {
	t.Helper()
	a, err := mem.NewArena(16*page, nil)
	fatal(t, err)
	p := &peer{mem: a.Bytes()}
	p.cache, err = New(d, Options{})
	fatal(t, err)
	p.cq, err = d.NewCQ(fabric.CQOptions{Depth: 64})
	fatal(t, err)
	t.Cleanup(func() {
		fatal(t, p.ep.Close())
		fatal(t, p.cache.Close())
		fatal(t, d.Close())
		fatal(t, p.cq.Close())
		fatal(t, a.Close())
	})
	return p
}

func (p *peer) config() fabric.EndpointConfig {
	return fabric.EndpointConfig{SendCQ: p.cq, RecvCQ: p.cq, SendDepth: 8, RecvDepth: 8}
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// connect joins two domains that, like a device, move registered memory only.
func connect(t *testing.T) (server, client *peer) {
	t.Helper()
	net := sim.New(sim.Options{RegionsOnly: true})
	there, here := net.Open(), net.Open()
	server, client = newPeer(t, there), newPeer(t, here)
	ctx := context.Background()
	l, err := there.Connector().Listen("there")
	fatal(t, err)
	accepted := make(chan error)
	go func() {
		var err error
		server.ep, err = l.Accept(ctx, func(fabric.Peer) (fabric.EndpointConfig, error) {
			return server.config(), nil
		})
		accepted <- err
	}()
	client.ep, err = here.Connector().Dial(ctx, "there", client.config())
	fatal(t, err)
	fatal(t, <-accepted)
	fatal(t, l.Close())
	return server, client
}

// write moves the pieces to the remote memory and returns how it ended.
func (p *peer) write(t *testing.T, pieces []fabric.Sge, to fabric.Remote) error {
	t.Helper()
	fatal(t, p.ep.Post([]fabric.WR{{
		Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Local: pieces, Remote: to,
	}}))
	var done [1]fabric.Completion
	_, err := p.cq.Wait(context.Background(), done[:])
	fatal(t, err)
	return done[0].Err
}

// TestTransfer moves data between memory that caches registered: local registrations are kept from
// one request to the next, remote rights end with each.
func TestTransfer(t *testing.T) {
	server, client := connect(t)
	ctx := context.Background()
	server.cache.Hint(server.mem)
	client.cache.Hint(client.mem)
	for i := range server.mem {
		server.mem[i] = byte(i / 7)
	}
	for round := range 3 {
		clear(client.mem)
		pieces := []fabric.Sge{
			{Buf: server.mem[round*page : round*page+100]}, {Buf: server.mem[9*page : 10*page]},
		}
		list, err := server.cache.GetList(ctx, pieces)
		fatal(t, err)
		n := 100 + page
		ref, err := client.cache.Get(ctx, client.mem[5:5+n])
		fatal(t, err)
		off := int(extentOf(client.mem[5:]).lo - extentOf(ref.Region().Bytes()).lo)
		grant, err := ref.Region().Grant(client.ep, off, n, fabric.RemoteWrite)
		fatal(t, err)
		fatal(t, server.write(t, pieces, grant))
		ref.Region().Revoke(grant)
		ref.Put()
		if !client.cache.Registered(client.mem) {
			t.Fatal("the local registration is gone")
		}
		wantKind(t, "the right has ended", server.write(t, pieces, grant), errs.Perm)
		list.Put()
		want := append(bytes.Clone(pieces[0].Buf), pieces[1].Buf...)
		if !bytes.Equal(client.mem[5:5+n], want) || client.mem[4] != 0 || client.mem[5+n] != 0 {
			t.Fatal("other bytes arrived, or elsewhere")
		}
	}
	if s := client.cache.Stats(); s.Misses != 1 || s.Hits != 2 {
		t.Fatalf("%+v", s)
	}
}
