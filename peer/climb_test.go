package peer

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/msg"
)

// poolOf is a pool of one peer that looks for better ways often.
func poolOf(t *testing.T, n *Network, addr string) *Pool {
	t.Helper()
	pool := NewPool(n, func(context.Context, uint32) (string, error) { return addr, nil })
	pool.climbs = Backoff{First: 20 * time.Millisecond, Max: 100 * time.Millisecond}
	pool.quiet = 50 * time.Millisecond
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

func mustGet(t *testing.T, pool *Pool) *msg.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := pool.Get(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// blocking answers a request with a body when it is told to, others at once.
func blocking(release <-chan struct{}) msg.Handler {
	return msg.HandlerFunc(func(ctx context.Context, c *msg.Call) {
		if len(c.Body()) > 0 {
			select {
			case <-release:
			case <-ctx.Done():
			}
		}
		_ = c.Reply(c.Body(), 0)
	})
}

// TestAPoolClimbs: when a better way works again new requests go by it; the one under way on the
// old connection is answered there, and then that is closed.
func TestAPoolClimbs(t *testing.T) {
	s := newSteps(t, nil)
	release := make(chan struct{})
	if _, err := s.server.Serve("tcp:base,shm:unix:/x", blocking(release),
		msg.ServeOptions{}); err != nil {
		t.Fatal(err)
	}
	s.near.deaf()
	pool := poolOf(t, s.client, "base")
	old := mustGet(t, pool)
	if old.Provider() != TCP || !s.client.MayClimb(old) {
		t.Fatalf("over %s, may climb %v: %v", old.Provider(), s.client.MayClimb(old),
			s.client.Ladder(old))
	}
	answered := make(chan error, 1)
	go func() { answered <- call(old, time.Minute, &msg.Request{Body: []byte("wait")}) }()
	await(t, func() bool { return old.Credits().Count == 1 })
	again, err := s.server.Serve("shm:unix:/x", blocking(release), msg.ServeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return mustGet(t, pool).Provider() == SHM })
	if err := call(mustGet(t, pool), time.Minute, &msg.Request{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(4 * pool.quiet) // it is in use, however long that takes
	if old.Err() != nil || len(answered) > 0 {
		t.Fatalf("the old connection is %v, its request %v", old.Err(), len(answered))
	}
	close(release)
	if err := <-answered; err != nil {
		t.Fatalf("the request that was under way: %v", err)
	}
	await(t, func() bool { return old.Err() != nil })
	if got := s.client.Climbed(); got[SHM] != 1 {
		t.Fatalf("counted %v", got)
	}
	carried := again.Carried()[SHM]
	if carried.Accepted == 0 || carried.Calls == 0 || again.Via()[SHM] != carried.Conns {
		t.Fatalf("the provider carried %+v", carried)
	}
	if w := s.client.WhyNot(mustGet(t, pool)); len(w) != 0 {
		t.Fatalf("still says %v", w)
	}
}

// TestNoUseInClimbing: what somebody has decided is not asked again and again.
func TestNoUseInClimbing(t *testing.T) {
	s := newSteps(t, nil)
	s.serve(t, "tcp:only")
	c := s.dialAndUse(t, "only")
	if s.client.MayClimb(c) {
		t.Fatalf("what is not offered: %v", s.client.Ladder(c))
	}
	if better, err := s.client.Better(t.Context(), c); better != nil || err != nil {
		t.Fatalf("%v, %v", better, err)
	}
	s.serve(t, "tcp:far,shm:unix:/far")
	s.client.host[0] ^= 1
	if c = s.dialAndUse(t, "far"); s.client.MayClimb(c) {
		t.Fatalf("another host: %v", s.client.Ladder(c))
	}
	for kind, want := range map[errs.Kind]bool{errs.Perm: false, errs.Unsupported: false,
		errs.Disconnected: true, errs.TimedOut: true, errs.Conflict: true} {
		if mayPass(errs.New(kind, "x", "", nil)) != want {
			t.Errorf("%v may pass: %v", kind, !want)
		}
	}
}

// TestPausesGrow: between attempts of one that fails on and on, up to a bound.
func TestPausesGrow(t *testing.T) {
	var m misses
	pause := func() time.Duration { return m.list["k"].pause.Round(time.Second) }
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		m.note("k", errs.New(errs.TimedOut, "x", "", nil))
		if pause() != want*time.Second {
			t.Fatalf("%d: %v", i, pause())
		}
	}
	if m.recent("k") == nil {
		t.Fatal("not remembered")
	}
	m.forget("k")
	if m.recent("k") != nil {
		t.Fatal("not forgotten")
	}
	for i := range 3 * maxMisses {
		m.note(string(rune(i)), errs.New(errs.TimedOut, "x", "", nil))
	}
	if len(m.list) > maxMisses {
		t.Fatalf("%d are remembered", len(m.list))
	}
	e := &entry{climbed: time.Now(), climbs: 3}
	p := &Pool{climbs: Backoff{First: time.Nanosecond, Max: time.Microsecond}}
	p.ctx, p.cancel = context.WithCancel(t.Context())
	p.cancel()
	s := newSteps(t, nil)
	s.serve(t, "tcp:only")
	c := s.dialAndUse(t, "only")
	p.pause(e, c)
	if e.climbs != 4 {
		t.Fatalf("one that comes and goes begins anew: %d", e.climbs)
	}
	e.climbed = time.Now().Add(-2 * climbRest)
	p.pause(e, c)
	if e.climbs != 1 {
		t.Fatalf("after a rest: %d", e.climbs)
	}
}
