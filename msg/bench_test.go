package msg

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/fabric"
)

// BenchmarkRTT8 is an 8-byte request with an 8-byte reply.
func BenchmarkRTT8(b *testing.B) { benchRTT8(b, tcpProvider(), nil) }

func benchRTT8(b *testing.B, p provider, tweak func(client, server *Options)) {
	r := newRig(b, p, answerer(), tweak)
	ctx, req := context.Background(), Request{Body: make([]byte, 8)}
	var rep Reply
	b.ReportAllocs()
	for b.Loop() {
		if err := r.conn.Call(ctx, &req, &rep); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRTT8Parallel keeps 32 requests outstanding on one connection.
func BenchmarkRTT8Parallel(b *testing.B) {
	r := newRig(b, tcpProvider(), HandlerFunc(func(_ context.Context, c *Call) {
		_ = c.Reply(c.Body(), 0)
	}), nil)
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		ctx, req := context.Background(), Request{Body: make([]byte, 8)}
		var rep Reply
		for pb.Next() {
			if err := r.conn.Call(ctx, &req, &rep); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkPlainTCP is what a round trip costs without sluice: the measure for BenchmarkRTT8.
func BenchmarkPlainTCP(b *testing.B) {
	client, server := tcpPair(b)
	go func() {
		buf := make([]byte, 8)
		for {
			if _, err := io.ReadFull(server, buf); err != nil {
				return
			}
			if _, err := server.Write(buf); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 8)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := client.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(client, buf); err != nil {
			b.Fatal(err)
		}
	}
}

func tcpPair(b *testing.B) (client, server net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		b.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return client, server
}

const mib = 1 << 20

// BenchmarkPush1M delivers 1 MiB of reply data per request, one at a time.
func BenchmarkPush1M(b *testing.B) { benchMove(b, 1, false) }

// BenchmarkPush1MDepth4 keeps four of them outstanding.
func BenchmarkPush1MDepth4(b *testing.B) { benchMove(b, 4, false) }

// BenchmarkPull1MDepth4 fetches 1 MiB of request data, four requests outstanding.
func BenchmarkPull1MDepth4(b *testing.B) { benchMove(b, 4, true) }

func benchMove(b *testing.B, depth int, pull bool) {
	bufs := make(chan fabric.Sge, depth)
	r := newRig(b, tcpProvider(), HandlerFunc(func(ctx context.Context, c *Call) {
		buf := <-bufs
		defer func() { bufs <- buf }()
		one := [1]fabric.Sge{buf}
		var err error
		if pull {
			err = c.Pull(ctx, 0, one[:])
		} else {
			err = c.Push(ctx, 0, one[:])
		}
		if err != nil {
			_ = c.Fail(err)
			return
		}
		_ = c.Reply(nil, c.InLen())
	}), nil)
	for range depth {
		bufs <- memory(b, r.sdom, mib)
	}
	b.SetBytes(mib)
	b.ReportAllocs()
	work := make(chan struct{}, b.N)
	for range b.N {
		work <- struct{}{}
	}
	close(work)
	done := make(chan error, depth)
	for range depth {
		go func() {
			local := contig(memory(b, r.cdom, mib))
			req := Request{In: local}
			if pull {
				req = Request{Out: local}
			}
			var rep Reply
			for range work {
				if err := r.conn.Call(context.Background(), &req, &rep); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range depth {
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}

// BenchmarkPlainTCP1M is a plain stream of 1 MiB writes: the measure for the bulk benchmarks.
func BenchmarkPlainTCP1M(b *testing.B) {
	client, server := tcpPair(b)
	b.SetBytes(mib)
	go func() {
		buf := make([]byte, mib)
		for range b.N {
			if _, err := server.Write(buf); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, mib)
	for range b.N {
		if _, err := io.ReadFull(client, buf); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFabricRTT8 is the provider's own round trip with messages of the same size: what is left
// between it and BenchmarkRTT8 is this package.
func BenchmarkFabricRTT8(b *testing.B) { benchFabric(b, tcpProvider(), 0) }

// BenchmarkFabricShmRTT8 and BenchmarkShmRTT8 are the same over shared memory; Spin polls.
func BenchmarkFabricShmRTT8(b *testing.B) { benchFabric(b, shmProvider(b), 0) }

func BenchmarkFabricShmRTT8Spin(b *testing.B) { benchFabric(b, shmProvider(b), pollSpin) }

func BenchmarkShmRTT8(b *testing.B) { benchRTT8(b, shmProvider(b), nil) }

func BenchmarkShmRTT8Spin(b *testing.B) {
	benchRTT8(b, shmProvider(b), func(client, server *Options) {
		client.Progress, server.Progress = ProgressPoll, ProgressPoll
	})
}

// BenchmarkRTT8Thread is what a thread of its own costs.
func BenchmarkRTT8Thread(b *testing.B) {
	benchRTT8(b, tcpProvider(), func(client, server *Options) {
		client.Progress, server.Progress = ProgressThread, ProgressThread
	})
}

// taker takes what it is sent.
func taker() Handler {
	buf := make([]byte, 64<<10)
	return HandlerFunc(func(ctx context.Context, c *Call) {
		err := c.Pull(ctx, 0, []fabric.Sge{{Buf: buf[:c.OutLen()]}})
		if err != nil {
			_ = c.Fail(err)
			return
		}
		_ = c.Reply(nil, 0)
	})
}

// BenchmarkWrite32K is request data of 32 KiB by eager slot and by rendezvous.
func BenchmarkWrite32K(b *testing.B) {
	for _, p := range []provider{tcpProvider(), shmProvider(b)} {
		for by, name := range map[Protocol]string{
			Eager: "eager", Rendezvous: "rendezvous",
		} {
			b.Run(p.name+"/"+name, func(b *testing.B) {
				r := newRig(b, p, taker(), nil)
				useSlots(b, r, r.conn, 32<<10)
				req := Request{Out: contig(memory(b, r.cdom, 32<<10)), By: by}
				b.SetBytes(32 << 10)
				for b.Loop() {
					if err := r.conn.Call(context.Background(), &req, &Reply{}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func benchFabric(b *testing.B, p provider, spin time.Duration) {
	_, cdom, sdom := p.open(b, 0)
	defer cdom.Close()
	defer sdom.Close()
	l, err := sdom.Connector().Listen(p.addr)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	side := func(d fabric.Domain) (fabric.EndpointConfig, fabric.Sge) {
		cq, err := d.NewCQ(fabric.CQOptions{Depth: 64, Spin: spin})
		if err != nil {
			b.Fatal(err)
		}
		return fabric.EndpointConfig{SendCQ: cq, RecvCQ: cq, SendDepth: 16, RecvDepth: 16},
			memory(b, d, 4096)
	}
	ccfg, cmem := side(cdom)
	scfg, smem := side(sdom)
	accepted := make(chan fabric.Endpoint, 1)
	go func() {
		ep, err := l.Accept(context.Background(),
			func(fabric.Peer) (fabric.EndpointConfig, error) { return scfg, nil })
		if err != nil {
			b.Error(err)
		}
		accepted <- ep
	}()
	cep, err := cdom.Connector().Dial(context.Background(), l.Addr().String(), ccfg)
	if err != nil {
		b.Fatal(err)
	}
	turn := func(ep fabric.Endpoint, cq fabric.CQ, m fabric.Sge, first bool, n int) {
		recv := []fabric.Recv{{Reg: m.Reg, Buf: m.Buf[2048:]}}
		wrs := []fabric.WR{{Op: fabric.OpSend, Flags: fabric.FlagInline,
			Local: []fabric.Sge{{Reg: m.Reg, Buf: m.Buf[:88]}}}}
		var comp [8]fabric.Completion
		_ = ep.PostRecv(recv)
		for range n {
			if first {
				_ = ep.Post(wrs)
			}
			if _, err := cq.Wait(context.Background(), comp[:]); err != nil {
				return
			}
			_ = ep.PostRecv(recv)
			if !first {
				_ = ep.Post(wrs)
			}
		}
	}
	sep := <-accepted
	go turn(sep, scfg.RecvCQ, smem, false, b.N)
	b.ResetTimer()
	turn(cep, ccfg.RecvCQ, cmem, true, b.N)
	b.StopTimer()
	_ = cep.Close()
	_ = sep.Close()
}
