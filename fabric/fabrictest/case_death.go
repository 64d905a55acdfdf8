package fabrictest

import (
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

func deathCases() []testCase {
	return []testCase{
		{"send without a posted receive", testNoReceive},
		{"immediate without a posted receive", testNoReceiveImm},
		{"message longer than its receive", testTooLong},
		{"close completes everything at both ends", testClose},
		{"close during traffic", testCloseDuringTraffic},
		{"domain close", testDomainClose},
		{"one death leaves the others alone", testOneDeath},
	}
}

// protocolDeath checks that both ends are dead because of errs.Protocol. a has one receive pending.
func (r *rig) protocolDeath() {
	r.t.Helper()
	if c := r.a.waitRecv(); c.ErrKind() != errs.Protocol {
		r.t.Fatalf("a's receive: %v", c.Err)
	}
	r.a.dies(errs.Disconnected)
	r.b.dies(errs.Disconnected)
}

func testNoReceive(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	r.a.recv(1, 8)
	r.b.recv(1, 8)
	r.a.post(r.a.send(1, "fits"))
	r.b.got(1, 4)
	r.a.done(1, errs.OK)
	r.a.post(r.a.send(2, "one too many"))
	r.protocolDeath()
	// A provider may have completed the send when its memory was free.
	if c := r.a.waitSend(); c.Err != nil && c.ErrKind() != errs.Protocol {
		t.Fatalf("the send: %v", c.Err)
	}
}

func testNoReceiveImm(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	r.a.recv(1, 8)
	r.b.recv(1, 8)
	rem := r.b.grant(0, 8, fabric.RemoteWrite)
	for i := range uint64(2) {
		wr := r.a.write(i, 0, "x", rem)
		wr.Op = fabric.OpWriteImm
		r.a.post(wr)
	}
	r.b.got(1, 1)
	r.protocolDeath()
	if c := r.a.waitSend(); c.Context != 0 || (c.Err != nil && c.ErrKind() != errs.Protocol) {
		t.Fatalf("the first write: %+v", c)
	}
	r.a.done(1, errs.Protocol)
}

func testTooLong(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	r.a.recv(1, 8)
	buf := r.b.recv(1, 8)
	r.a.post(r.a.send(1, "123456789"))
	if c := r.b.waitRecv(); c.Context != 1 || c.ErrKind() != errs.Protocol {
		t.Fatalf("b's receive: %+v", c)
	}
	r.protocolDeath()
	if r.b.mem[4096+len(buf)] != 0 {
		t.Fatal("memory behind the receive was written")
	}
}

func testClose(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	const recvs = 5
	for i := range uint64(recvs) {
		r.a.recv(i, 8)
		r.b.recv(i, 8)
	}
	check(t, r.a.ep.Close())
	check(t, r.a.ep.Close())
	for i := range uint64(recvs) {
		if c := r.a.waitRecv(); c.Context != i || c.ErrKind() != errs.Closed || c.EP != r.a.ep {
			t.Fatalf("a: %+v", c)
		}
		if c := r.b.waitRecv(); c.Context != i || c.ErrKind() != errs.Disconnected {
			t.Fatalf("b: %+v", c)
		}
	}
	wantKind(t, r.a.ep.Post([]fabric.WR{r.a.send(1, "x")}), errs.Closed)
	wantKind(t, r.a.ep.PostRecv(make([]fabric.Recv, 1)), errs.Closed)
	wantKind(t, r.b.ep.Post([]fabric.WR{r.b.send(1, "x")}), errs.Disconnected)
	wantKind(t, r.b.ep.PostRecv(make([]fabric.Recv, 1)), errs.Disconnected)
	_, err := r.a.reg.Grant(r.a.ep, 0, 1, fabric.RemoteRead)
	wantKind(t, err, errs.Closed)
	_, err = r.b.reg.Grant(r.b.ep, 0, 1, fabric.RemoteRead)
	wantKind(t, err, errs.Disconnected)
	check(t, r.b.ep.Close())
	wantKind(t, r.b.ep.Post(nil), errs.Closed)
	r.a.nothing()
	r.b.nothing()
}

func testCloseDuringTraffic(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	for round := range 10 {
		rights := fabric.RemoteRead | fabric.RemoteWrite
		const size = 100000 // pieces that do not overlap: read into, written from, read, written
		remB := r.b.grant(memBytes/2, 2*size, rights)
		remA := r.a.grant(memBytes/2, 2*size, rights)
		count := map[*side]int{}
		for _, s := range []*side{r.a, r.b} {
			s.recv(0, 8)
			count[s]++
			to := remB
			if s == r.b {
				to = remA
			}
			for i := range uint64(20) {
				wr := s.read(i, 2*size+int(i)*2048, to.Slice(0, 2000)) // no two into one place
				switch {
				case i == 1:
					wr = s.read(i, 0, to.Slice(0, size))
				case i%2 == 0:
					wr = s.read(i, size, to.Slice(size, size))
					wr.Op = fabric.OpWrite
				}
				if s.ep.Post([]fabric.WR{wr}) == nil {
					count[s]++
				}
			}
		}
		closer := []*side{r.a, r.b}[round%2]
		check(t, closer.ep.Close())
		for _, s := range []*side{r.a, r.b} {
			for range count[s] {
				c := s.waitFor("the end", func(fabric.Completion) bool { return true })
				kind := c.ErrKind()
				if kind != errs.OK && kind != errs.Closed && kind != errs.Disconnected {
					t.Fatalf("completion %+v", c)
				}
			}
			s.nothing()
			check(t, s.ep.Close())
		}
		r.a.ep, r.b.ep = r.connect(r.a.config(), r.b.config())
	}
}

func testDomainClose(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	second, _ := r.connect(r.a.config(), r.b.config())
	r.a.recv(1, 8)
	r.b.recv(1, 8)
	check(t, second.PostRecv([]fabric.Recv{{Context: 2, Reg: r.a.reg, Buf: r.a.piece(0, 8)}}))
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { check(t, r.a.dom.Close()) })
	}
	wg.Wait()
	for range 2 {
		if c := r.a.waitRecv(); c.ErrKind() != errs.Closed {
			t.Fatalf("a: %+v", c)
		}
	}
	if c := r.b.waitRecv(); c.ErrKind() != errs.Disconnected {
		t.Fatalf("b: %+v", c)
	}
	_, err := r.a.dom.Connector().Listen("")
	wantKind(t, err, errs.Closed)
	_, err = r.a.dom.Register(r.a.mem[:4096])
	wantKind(t, err, errs.Closed)
	_, err = r.a.dom.NewCQ(fabric.CQOptions{Depth: 8})
	wantKind(t, err, errs.Closed)
	_, err = r.a.dom.Connector().Dial(t.Context(), r.listen.Addr().String(), r.a.config())
	wantKind(t, err, errs.Closed)
}

func testOneDeath(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	otherA, otherB := r.connect(r.a.config(), r.b.config())
	check(t, otherA.Close())
	check(t, otherB.Close())
	r.barrier()
}
