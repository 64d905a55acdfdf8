package fabrictest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

func connectCases() []testCase {
	return []testCase{
		{"hello", testHello},
		{"hello of another version", testHelloVersion},
		{"refused by the listener", testRefused},
		{"the accepting side sees the peer before it answers", testAcceptSees},
		{"dial to nobody", testDialNobody},
		{"dial gives up", testDialGivesUp},
		{"accept gives up", testAcceptGivesUp},
		{"many dial at once", testManyDial},
		{"listener close", testListenerClose},
		{"many endpoints", testManyEndpoints},
	}
}

func testHello(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	a, b := r.a.config(), r.b.config()
	a.Hello = fabric.Hello{Features: 3, Identity: 77, RecvDepth: 5, MaxMessage: 999}
	b.Hello = fabric.Hello{Features: 0xff00, Identity: 1 << 63}
	epA, epB := r.connect(a, b)
	want := a.Hello
	want.Version = fabric.HelloVersion
	if epB.Peer().Hello != want {
		t.Fatalf("b sees %+v, want %+v", epB.Peer(), want)
	}
	want = fabric.Hello{
		Version: fabric.HelloVersion, RecvDepth: depth, Features: 0xff00, Identity: 1 << 63,
		MaxMessage: uint32(r.b.dom.Caps().MaxMessage),
	}
	if epA.Peer().Hello != want {
		t.Fatalf("a sees %+v, want %+v", epA.Peer(), want)
	}
	if epA.Name() == "" || epA.Name() == r.a.ep.Name() {
		t.Fatalf("names do not tell endpoints apart: %q, %q", epA.Name(), r.a.ep.Name())
	}
	if r.a.dom.Caps().Provider == "" {
		t.Fatal("the provider has no name")
	}
}

func testHelloVersion(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	a := r.a.config()
	a.Hello.Version = fabric.HelloVersion + 1
	_, _, errA, errB := r.tryConnect(a, r.b.config())
	wantKind(t, errA, errs.Version)
	wantKind(t, errB, errs.Version)
	r.connect(r.a.config(), r.b.config()) // the listener goes on
}

// accept serves one call at b as tell says, and returns what Accept returned.
func (r *rig) accept(ctx context.Context, tell func(fabric.Peer) error) (fabric.Endpoint, error) {
	return r.listen.Accept(ctx, func(p fabric.Peer) (fabric.EndpointConfig, error) {
		return r.b.config(), tell(p)
	})
}

// dial calls b's listener in the background.
func (r *rig) dial(ctx context.Context, a fabric.EndpointConfig) <-chan dialled {
	done := make(chan dialled, 1)
	go func() {
		ep, err := r.a.dom.Connector().Dial(ctx, r.listen.Addr().String(), a)
		done <- dialled{ep, err}
	}()
	return done
}

type dialled struct {
	ep  fabric.Endpoint
	err error
}

func testRefused(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	ctx, cancel := cfg.limit()
	defer cancel()
	for _, c := range []struct{ refusal, told errs.Kind }{
		{errs.Perm, errs.Perm},
		{errs.Forged, errs.Perm},
		{errs.Again, errs.Again},
		{errs.Version, errs.Version},
		{errs.NoMemory, errs.Disconnected},
		{errs.NotFound, errs.Disconnected},
		{errs.IO, errs.Disconnected},
	} {
		done := r.dial(ctx, r.a.config())
		_, err := r.accept(ctx, func(fabric.Peer) error {
			return errs.New(c.refusal, "test", "", nil)
		})
		if errs.KindOf(err) != c.refusal {
			t.Errorf("Accept that refused with %v: %v", c.refusal, err)
		}
		if d := <-done; errs.KindOf(d.err) != c.told {
			t.Errorf("Dial refused with %v: %v, want %v", c.refusal, d.err, c.told)
		}
	}
	r.connect(r.a.config(), r.b.config())
	r.barrier()
}

func testAcceptSees(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	ctx, cancel := cfg.limit()
	defer cancel()
	a := r.a.config()
	a.Hello.Identity, a.Hello.Features = 0xabcdef, 0x8001
	done := r.dial(ctx, a)
	var seen fabric.Peer
	ep, err := r.accept(ctx, func(p fabric.Peer) error {
		seen = p
		return nil
	})
	check(t, err)
	check(t, (<-done).err)
	if !samePeer(seen, ep.Peer()) || seen.Identity != 0xabcdef || seen.Features != 0x8001 {
		t.Fatalf("asked with %+v, connected to %+v", seen, ep.Peer())
	}
	if seen.Proof == fabric.ProofNone && seen.Name != "" {
		t.Fatalf("a name that nobody proved: %+v", seen)
	}
}

func testDialNobody(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	name := r.listen.Addr().String()
	check(t, r.listen.Close())
	ctx, cancel := cfg.limit()
	defer cancel()
	_, err := r.a.dom.Connector().Dial(ctx, name, r.a.config())
	wantKind(t, err, errs.Disconnected)
}

func testDialGivesUp(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := r.a.dom.Connector().Dial(ctx, r.listen.Addr().String(), r.a.config())
	wantKind(t, err, errs.TimedOut)
	// Nobody waits for that peer any more; the next one is served, whatever Accept says of the
	// first.
	ctx, cancel = cfg.limit()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_, _ = r.listen.Accept(ctx, func(fabric.Peer) (fabric.EndpointConfig, error) {
				return r.b.config(), nil
			})
		}
	}()
	_, err = r.a.dom.Connector().Dial(ctx, r.listen.Addr().String(), r.a.config())
	check(t, err)
	cancel()
	<-done
}

func testAcceptGivesUp(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	nobody := func(fabric.Peer) error {
		t.Error("somebody was accepted")
		return nil
	}
	short, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err := r.accept(short, nobody)
	wantKind(t, err, errs.TimedOut)
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = r.accept(canceled, nobody)
	wantKind(t, err, errs.Canceled)
	r.a.ep, r.b.ep = r.connect(r.a.config(), r.b.config()) // the listener is as good as before
	r.barrier()
}

// testManyDial has more diallers than anybody waits for; each gets an endpoint of its own.
func testManyDial(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	ctx, cancel := cfg.limit()
	defer cancel()
	const count = 12
	var calls [count]<-chan dialled
	for i := range calls {
		a := r.a.config()
		a.SendDepth, a.RecvDepth, a.Hello.Identity = 4, 4, uint64(i+1)
		calls[i] = r.dial(ctx, a)
	}
	ends := map[uint64]fabric.Endpoint{}
	for range calls {
		ep, err := r.listen.Accept(ctx, func(fabric.Peer) (fabric.EndpointConfig, error) {
			b := r.b.config()
			b.SendDepth, b.RecvDepth = 4, 4
			return b, nil
		})
		check(t, err)
		ends[ep.Peer().Identity] = ep
	}
	for i, call := range calls {
		d := <-call
		check(t, d.err)
		r.a.ep, r.b.ep = d.ep, ends[uint64(i+1)]
		if r.b.ep == nil {
			t.Fatalf("dialler %d was not accepted", i)
		}
		r.barrier() // these two are each other's peers
	}
}

func testListenerClose(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	done := make(chan error)
	go func() {
		_, err := r.listen.Accept(context.Background(), nil)
		done <- err
	}()
	check(t, r.listen.Close())
	wantKind(t, <-done, errs.Closed)
	_, err := r.listen.Accept(context.Background(), nil)
	wantKind(t, err, errs.Closed)
	check(t, r.listen.Close())
	r.barrier() // connections outlive their listener
}

func testManyEndpoints(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	const count = 24
	small := func(s *side) fabric.EndpointConfig {
		c := s.config()
		c.SendDepth, c.RecvDepth = 4, 4
		return c
	}
	index := map[fabric.Endpoint]int{}
	var ends [count][2]fabric.Endpoint
	for i := range ends {
		ends[i][0], ends[i][1] = r.connect(small(r.a), small(r.b))
		index[ends[i][1]] = i
		buf := r.b.piece(i*64, 64)
		check(t, ends[i][1].PostRecv([]fabric.Recv{{Context: uint64(i), Reg: r.b.reg, Buf: buf}}))
	}
	for i := range ends {
		check(t, ends[i][0].Post([]fabric.WR{r.a.send(uint64(i), fmt.Sprintf("hello %2d", i))}))
	}
	for range ends {
		c := r.b.waitRecv()
		i, ok := index[c.EP]
		if !ok || c.Err != nil || c.Context != uint64(i) {
			t.Fatalf("unexpected %+v", c)
		}
		if got, want := string(r.b.piece(i*64, c.Len)), fmt.Sprintf("hello %2d", i); got != want {
			t.Fatalf("endpoint %d received %q", i, got)
		}
	}
}

func samePeer(a, b fabric.Peer) bool {
	return a.Hello == b.Hello && a.Proof == b.Proof && a.Name == b.Name
}
