package fabrictest

import (
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

func misuseCases() []testCase {
	return []testCase{
		{"post misuse", testPostMisuse},
		{"receive misuse", testRecvMisuse},
		{"endpoint misuse", testEndpointMisuse},
		{"memory without a region", testAnyMemory},
		{"remote sliced beyond its range panics", testSlicePanics},
	}
}

func testPostMisuse(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	caps := r.a.dom.Caps()
	a, b := r.a.config(), r.b.config()
	b.Hello.MaxMessage = 100
	r.a.ep, r.b.ep = r.connect(a, b)
	rem := r.b.grant(0, 8, fabric.RemoteWrite|fabric.RemoteRead)
	closed, err := r.a.dom.Register(memory(t, r.a.dom, 4096))
	check(t, err)
	check(t, closed.Close())
	local := r.a.sge(0, "8 bytes!")
	foreign := fabric.Sge{Reg: r.b.reg, Buf: r.b.piece(0, 8)}
	outside := fabric.Sge{Reg: r.a.reg, Buf: make([]byte, 8)}
	op := func(o fabric.Op, change func(*fabric.WR)) fabric.WR {
		wr := fabric.WR{Op: o, Local: local, Remote: rem}
		change(&wr)
		return wr
	}
	set := func(s ...fabric.Sge) func(*fabric.WR) { return func(wr *fabric.WR) { wr.Local = s } }
	flag := func(f fabric.Flags) func(*fabric.WR) { return func(wr *fabric.WR) { wr.Flags = f } }
	none := func(*fabric.WR) {}
	for name, wr := range map[string]fabric.WR{
		"no operation":        op(0, none),
		"receive":             op(fabric.OpRecv, none),
		"unknown flag":        op(fabric.OpSend, flag(0x80)),
		"too many to send":    op(fabric.OpSend, set(make([]fabric.Sge, caps.MaxSge+1)...)),
		"too many to write":   op(fabric.OpWrite, set(manyPieces(local, caps.MaxSge+1)...)),
		"too many to read":    op(fabric.OpRead, set(manyPieces(local, caps.MaxSge+1)...)),
		"inline read":         op(fabric.OpRead, flag(fabric.FlagInline)),
		"shorter than remote": op(fabric.OpWrite, func(wr *fabric.WR) { wr.Remote.Len++ }),
		"longer than remote":  op(fabric.OpRead, func(wr *fabric.WR) { wr.Remote.Len-- }),
		"foreign region":      op(fabric.OpSend, set(foreign)),
		"closed region":       op(fabric.OpSend, set(fabric.Sge{Reg: closed, Buf: closed.Bytes()[:8]})),
		"outside its region":  op(fabric.OpSend, set(outside)),
		"longer than the peer takes": op(fabric.OpSend,
			set(fabric.Sge{Reg: r.a.reg, Buf: r.a.piece(0, 101)})),
		"inline too long": op(fabric.OpSend, func(wr *fabric.WR) {
			wr.Flags = fabric.FlagInline
			wr.Local = []fabric.Sge{{Reg: r.a.reg, Buf: r.a.piece(0, caps.MaxInline+1)}}
		}),
	} {
		if err := r.a.ep.Post([]fabric.WR{wr}); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.barrier() // none of it did anything
	r.a.nothing()
}

// manyPieces is the given list, made longer with empty ones.
func manyPieces(list []fabric.Sge, count int) []fabric.Sge {
	return append(list[:len(list):len(list)], make([]fabric.Sge, count-len(list))...)
}

func testRecvMisuse(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	for name, recv := range map[string]fabric.Recv{
		"foreign region":     {Reg: r.b.reg, Buf: r.b.piece(0, 8)},
		"outside its region": {Reg: r.a.reg, Buf: make([]byte, 8)},
	} {
		if err := r.a.ep.PostRecv([]fabric.Recv{recv}); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func testEndpointMisuse(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	limit := r.a.dom.Caps().QueueDepth
	foreign, ok := r.b.config(), r.a.config()
	ctx, cancel := cfg.limit()
	defer cancel()
	for name, change := range map[string]func(*fabric.EndpointConfig){
		"no send queue":    func(c *fabric.EndpointConfig) { c.SendCQ = nil },
		"no receive queue": func(c *fabric.EndpointConfig) { c.RecvCQ = nil },
		"foreign queue":    func(c *fabric.EndpointConfig) { c.SendCQ = foreign.SendCQ },
		"no send depth":    func(c *fabric.EndpointConfig) { c.SendDepth = 0 },
		"negative depth":   func(c *fabric.EndpointConfig) { c.RecvDepth = -1 },
		"send depth":       func(c *fabric.EndpointConfig) { c.SendDepth = limit + 1 },
		"receive depth":    func(c *fabric.EndpointConfig) { c.RecvDepth = limit + 1 },
		"message limit":    func(c *fabric.EndpointConfig) { c.Hello.MaxMessage = 1<<32 - 1 },
	} {
		c := ok
		change(&c)
		_, err := r.a.dom.Connector().Dial(ctx, r.listen.Addr().String(), c)
		if errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := r.a.dom.NewCQ(fabric.CQOptions{Depth: 0})
	wantKind(t, err, errs.Invalid)
}

func testAnyMemory(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	wr := fabric.WR{Op: fabric.OpSend, Flags: fabric.FlagSignaled, Context: 3}
	wr.Local = []fabric.Sge{{Buf: []byte("loose")}}
	recv := []fabric.Recv{{Context: 4, Buf: make([]byte, 8)}}
	if !r.a.dom.Caps().AnyMemory {
		wantKind(t, r.a.ep.Post([]fabric.WR{wr}), errs.Invalid)
		wantKind(t, r.b.ep.PostRecv(recv), errs.Invalid)
		return
	}
	check(t, r.b.ep.PostRecv(recv))
	r.a.post(wr)
	r.b.got(4, 5)
	r.a.done(3, errs.OK)
	if string(recv[0].Buf[:5]) != "loose" {
		t.Fatalf("received %q", recv[0].Buf)
	}
}

func testSlicePanics(t *testing.T, _ Config) {
	for _, c := range [][2]uint64{{11, 0}, {0, 11}, {5, 6}, {^uint64(0), 2}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Slice(%d, %d) of 10 bytes did not panic", c[0], c[1])
				}
			}()
			fabric.Remote{Len: 10}.Slice(c[0], c[1])
		}()
	}
}
