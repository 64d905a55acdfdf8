package fabrictest

import (
	"bytes"
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// loadCases use an endpoint as programs do: from several goroutines, with several queues, with all
// sizes, and with much at once.
func loadCases() []testCase {
	return []testCase{
		{"messages of many sizes", testSizes},
		{"several goroutines post", testPosters},
		{"send queue and receive queue apart", testTwoQueues},
		{"requests behind many reads", testBehindReads},
		{"many grants at once", testManyGrants},
		{"a narrowed grant", testNarrowed},
		{"writes through different grants", testDifferentGrants},
		{"inline gathers MaxSge pieces", testInlineGather},
		{"a deep queue", testDeepQueue},
	}
}

// sizes are those around which code tends to be wrong, up to limit.
func sizes(limit int) []int {
	all := []int{0}
	for n := 1; n <= limit; n *= 4 {
		for _, m := range []int{n - 1, n, n + 1} {
			if m > all[len(all)-1] && m <= limit {
				all = append(all, m)
			}
		}
	}
	if all[len(all)-1] != limit {
		all = append(all, limit)
	}
	return all
}

func testSizes(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	list := sizes(min(r.a.dom.Caps().MaxMessage, 64<<10)) // "largest message" is a case of its own
	for _, s := range [][2]*side{{r.a, r.b}, {r.b, r.a}} {
		fill(s[0].mem[memBytes/2:], 3)
		for i, size := range list {
			context := uint64(i)
			buf := s[1].recv(0, size) // each in the place of the one before
			from := s[0].piece(memBytes-size, size)
			s[0].post(fabric.WR{
				Op: fabric.OpSend, Flags: fabric.FlagSignaled, Context: context, Imm: uint32(size),
				Local: []fabric.Sge{{Reg: s[0].reg, Buf: from}},
			})
			if c := s[1].got(0, size); c.Imm != uint32(size) || !bytes.Equal(buf, from) {
				t.Fatalf("a message of %d bytes arrived damaged", size)
			}
			if c := s[0].done(context, errs.OK); c.Len != size {
				t.Fatalf("completion %+v", c)
			}
		}
	}
}

// testPosters has goroutines that post chains of two to one endpoint. Each one's messages arrive in
// its order, and nothing comes between the two of a chain.
func testPosters(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	const posters, count, window = 4, 60, 8
	for i := range uint64(posters * window * 2) {
		r.b.recv(i%depth, 16)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	credits := make([]chan struct{}, posters)
	for p := range credits {
		credits[p] = make(chan struct{}, window)
		for range window {
			credits[p] <- struct{}{}
		}
		wg.Go(func() {
			for i := range uint32(count) {
				<-credits[p]
				if err := postPair(r.a, p, i); err != nil {
					t.Errorf("poster %d: %v", p, err)
					return
				}
			}
		})
	}
	next := [posters]uint32{}
	for range posters * count {
		var imm [2]uint32
		for half := range imm {
			c := r.b.waitRecv()
			check(t, c.Err)
			imm[half] = c.Imm
			r.b.recv(c.Context, 16)
		}
		p := imm[0] >> 24
		if imm[0]&0x7fffff != next[p] || imm[1] != imm[0]|0x800000 {
			t.Fatalf("poster %d: got %#x and %#x, want number %d", p, imm[0], imm[1], next[p])
		}
		next[p]++
		credits[p] <- struct{}{}
	}
}

// postPair posts two messages as one chain, and polls when the queue is full, as everybody may.
func postPair(s *side, poster int, number uint32) error {
	wr := fabric.WR{Op: fabric.OpSend, Imm: uint32(poster)<<24 | number}
	wr.Local = []fabric.Sge{{Reg: s.reg, Buf: s.piece(0, 8)}}
	second := wr
	second.Imm |= 0x800000
	second.Flags = fabric.FlagSignaled
	for start := time.Now(); ; time.Sleep(20 * time.Microsecond) {
		var dst [4]fabric.Completion
		for _, c := range dst[:s.cq.Poll(dst[:])] {
			if c.Err != nil {
				return c.Err
			}
		}
		err := s.ep.Post([]fabric.WR{wr, second})
		if errs.KindOf(err) != errs.Again || time.Since(start) > s.cfg.Patience {
			return err
		}
	}
}

func testTwoQueues(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	recvs, err := r.a.dom.NewCQ(fabric.CQOptions{Depth: depth})
	check(t, err)
	a := r.a.config()
	a.RecvCQ = recvs
	r.a.ep, r.b.ep = r.connect(a, r.b.config())
	for i := range uint64(3) {
		r.a.recv(10+i, 8)
		r.b.recv(i, 8)
	}
	r.a.post(r.a.send(1, "there"))
	r.b.got(0, 5)
	r.b.post(r.b.send(2, "back"))
	r.a.done(1, errs.OK)
	other := &side{t: t, cfg: cfg, cq: recvs}
	if c := other.got(10, 4); c.EP != r.a.ep {
		t.Fatalf("completion %+v", c)
	}
	check(t, r.b.ep.Close())
	for i := range uint64(2) {
		if c := other.waitRecv(); c.Context != 11+i || c.ErrKind() != errs.Disconnected {
			t.Fatalf("completion %+v", c)
		}
	}
	r.a.nothing()
	check(t, r.a.ep.Close())
	check(t, recvs.Close())
}

func testBehindReads(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	count := min(4*r.a.dom.Caps().ReadDepth, depth-2)
	const size = 2000
	fill(r.b.mem[:size], 1)
	rem := r.b.grant(0, size, fabric.RemoteRead|fabric.RemoteWrite)
	for round := range 5 {
		buf := r.b.recv(1, 8)
		var wrs []fabric.WR
		for i := range count {
			wr := r.a.read(uint64(i), i*size, rem)
			if i%3 == round%3 {
				wr.Flags = 0
			}
			wrs = append(wrs, wr)
		}
		write := r.a.write(1000, memBytes-1000, "changed", rem.Slice(uint64(round*10), 7))
		write.Flags = fabric.FlagFence
		last := r.a.send(1001, "behind")
		last.Flags |= fabric.FlagFence
		before := bytes.Clone(r.b.mem[:size])
		r.a.post(append(wrs, write, last)...)
		r.b.got(1, 6)
		if string(buf[:6]) != "behind" || string(r.b.mem[round*10:round*10+7]) != "changed" {
			t.Fatalf("round %d: %q arrived, memory holds %q", round, buf[:6], r.b.mem[:64])
		}
		for c := r.a.waitSend(); c.Context != 1001; c = r.a.waitSend() {
			check(t, c.Err)
		}
		for i := range count { // the silent ones too: the fence was behind them
			if !bytes.Equal(r.a.mem[i*size:(i+1)*size], before) {
				t.Fatalf("round %d: read %d brought other bytes", round, i)
			}
		}
		r.a.nothing()
	}
}

func testManyGrants(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	const count = 200
	var rems [count]fabric.Remote
	seen := map[fabric.Remote]bool{}
	for i := range rems {
		rems[i] = r.b.grant(i*64, 64, fabric.RemoteWrite)
		if seen[rems[i]] {
			t.Fatalf("grant %d is the same as an earlier one", i)
		}
		seen[rems[i]] = true
	}
	for i := 0; i < count; i += 2 {
		r.b.reg.Revoke(rems[i])
	}
	for i := 1; i < count; i += 2 {
		var word [8]byte
		binary.BigEndian.PutUint64(word[:], uint64(i))
		r.a.post(r.a.write(uint64(i), i%depth*64, string(word[:]), rems[i]))
		r.a.done(uint64(i), errs.OK)
		r.b.reg.Revoke(rems[i])
	}
	for i := range count {
		got := binary.BigEndian.Uint64(r.b.mem[i*64:])
		if want := uint64(i * (i % 2)); got != want {
			t.Fatalf("place %d holds %d, want %d", i, got, want)
		}
	}
}

func testNarrowed(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	const off = 4096 + 17
	rem := r.b.grant(off, 1000, fabric.RemoteRead|fabric.RemoteWrite)
	fill(r.b.mem[off:off+1000], 8)
	before := bytes.Clone(r.b.mem)
	inner := rem.Slice(100, 500).Slice(50, 100).Slice(99, 1)
	if inner.Len != 1 || inner.Addr != rem.Addr+249 {
		t.Fatalf("%+v is no part of %+v", inner, rem)
	}
	r.a.post(
		r.a.write(1, 0, "!", inner),
		r.a.write(2, 64, "first", rem.Slice(0, 5)),
		r.a.write(3, 128, "last", rem.Slice(996, 4)),
		r.a.write(4, 192, "", rem.Slice(1000, 0)),
	)
	for i := range uint64(4) {
		r.a.done(i+1, errs.OK)
	}
	r.a.post(r.a.read(5, 2048, rem.Slice(1, 998)))
	r.a.done(5, errs.OK)
	r.b.reg.Revoke(rem)
	copy(before[off+249:], "!")
	copy(before[off:], "first")
	copy(before[off+996:], "last")
	if !bytes.Equal(before, r.b.mem) {
		t.Fatal("the writes went elsewhere")
	}
	if !bytes.Equal(r.a.mem[2048:2048+998], before[off+1:off+999]) {
		t.Fatal("the read brought other bytes")
	}
}

// testDifferentGrants writes to one place through several grants, with a message between, which is
// what puts them in order.
func testDifferentGrants(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	const size = 3000
	var rems [4]fabric.Remote
	for i := range rems {
		rems[i] = r.b.grant(memBytes/2, size, fabric.RemoteWrite)
	}
	for round := range 30 {
		var wrs []fabric.WR
		for i, rem := range rems {
			data := r.a.piece(i*size, size)
			fill(data, round*len(rems)+i)
			r.b.recv(uint64(i), 4)
			send := r.a.send(uint64(i), "next")
			send.Flags = 0
			wrs = append(wrs, fabric.WR{
				Op: fabric.OpWrite, Remote: rem, Local: []fabric.Sge{{Reg: r.a.reg, Buf: data}},
			}, send)
		}
		wrs[len(wrs)-1].Flags = fabric.FlagSignaled
		r.a.post(wrs...)
		for i := range rems {
			r.b.got(uint64(i), 4)
		}
		last := len(rems) - 1
		if !bytes.Equal(r.b.mem[memBytes/2:memBytes/2+size], r.a.piece(last*size, size)) {
			t.Fatalf("round %d: the last write is not what the memory holds", round)
		}
		r.a.done(uint64(last), errs.OK)
	}
}

func testInlineGather(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	caps := r.a.dom.Caps()
	size := min(caps.MaxInline, 2*caps.MaxSge+1)
	data := r.a.piece(0, size)
	fill(data, 1)
	want := bytes.Clone(data)
	var list []fabric.Sge
	for i := range caps.MaxSge {
		from, to := i*size/caps.MaxSge, (i+1)*size/caps.MaxSge
		list = append(list, fabric.Sge{Reg: r.a.reg, Buf: data[from:to]})
	}
	rem := r.b.grant(memBytes/2, size, fabric.RemoteWrite)
	buf := r.b.recv(1, size)
	r.a.post(
		fabric.WR{Op: fabric.OpWrite, Flags: fabric.FlagInline, Local: list, Remote: rem},
		fabric.WR{Op: fabric.OpSend, Flags: fabric.FlagInline, Local: list},
	)
	clear(data) // ours again
	r.b.got(1, size)
	if !bytes.Equal(buf, want) || !bytes.Equal(r.b.mem[memBytes/2:memBytes/2+size], want) {
		t.Fatal("inline pieces arrived damaged")
	}
}

// testDeepQueue fills queues that are deeper than the rig's with one chain.
func testDeepQueue(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	deep := min(r.a.dom.Caps().QueueDepth, 1024)
	config := func(s *side) fabric.EndpointConfig {
		q, err := s.dom.NewCQ(fabric.CQOptions{Depth: 2 * deep})
		check(t, err)
		t.Cleanup(func() { check(t, q.Close()) })
		return fabric.EndpointConfig{SendCQ: q, RecvCQ: q, SendDepth: deep, RecvDepth: deep}
	}
	a, b := config(r.a), config(r.b)
	r.a.ep, r.b.ep = r.connect(a, b)
	r.a.cq, r.b.cq = a.SendCQ, b.SendCQ
	var recvs []fabric.Recv
	var wrs []fabric.WR
	for i := range deep {
		buf := r.b.piece(i*8, 8)
		recvs = append(recvs, fabric.Recv{Context: uint64(i), Reg: r.b.reg, Buf: buf})
		wr := fabric.WR{
			Op: fabric.OpSend, Imm: uint32(i), Context: uint64(i),
			Local: []fabric.Sge{{Reg: r.a.reg, Buf: r.a.piece(i*8, 8)}},
		}
		binary.BigEndian.PutUint64(wr.Local[0].Buf, uint64(i))
		wrs = append(wrs, wr)
	}
	wrs[deep-1].Flags = fabric.FlagSignaled
	check(t, r.b.ep.PostRecv(recvs))
	r.a.post(wrs...)
	for i := range uint64(deep) {
		r.b.got(i, 8)
		if got := binary.BigEndian.Uint64(recvs[i].Buf); got != i {
			t.Fatalf("message %d is %d", i, got)
		}
	}
	r.a.done(uint64(deep-1), errs.OK)
	r.a.nothing()
	check(t, r.a.ep.Close()) // before their queues
	check(t, r.b.ep.Close())
}
