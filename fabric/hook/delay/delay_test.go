package delay_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/hook/delay"
	"github.com/sluice-storage/sluice/fabric/hook/hooktest"
	"github.com/sluice-storage/sluice/fabric/sim"
)

// pair is two ends over sim, of which only the first is slow.
func pair(t *testing.T, opts delay.Options) (a, b *hooktest.End) {
	net := sim.New(sim.Options{Seed: 8, MaxDelay: 4})
	return hooktest.Pair(t, wrap(opts)(t, net.Open()), net.Open(), "b")
}

// Each operation takes the time that was asked for, and not much more.
func TestFixedDelays(t *testing.T) {
	const slow, quick = 40 * time.Millisecond, 5 * time.Millisecond
	a, b := pair(t, delay.Options{
		Delay: delay.Span{Min: quick},
		Ops:   map[fabric.Op]delay.Span{fabric.OpRead: {Min: slow}, fabric.OpRecv: {}},
	})
	rem := b.Grant(0, 8)
	for _, c := range []struct {
		op   fabric.Op
		want time.Duration
	}{{fabric.OpWrite, quick}, {fabric.OpRead, slow}} {
		start := time.Now()
		a.Post(a.Move(c.op, 1, rem))
		a.Empty()
		a.Next(1)
		if took := time.Since(start); took < c.want || took > c.want+20*time.Second {
			t.Errorf("operation %d took %v, want %v", c.op, took, c.want)
		}
	}
	a.Recv(1, 8)
	b.Post(b.Send(1, 8))
	if c := a.Next(1)[0]; c.Op != fabric.OpRecv || c.Len != 8 {
		t.Errorf("completion %+v", c)
	}
}

// rate posts writes of size bytes for some time and tells bytes per second.
func rate(t *testing.T, a *hooktest.End, rem fabric.Remote, most time.Duration) float64 {
	wrs := []fabric.WR{a.Move(fabric.OpWrite, 1, rem)}
	ctx, cancel := context.WithTimeout(context.Background(), hooktest.Patience)
	defer cancel()
	dst := make([]fabric.Completion, hooktest.Depth)
	start := time.Now()
	bytes, pending := 0, 0
	for pending > 0 || time.Since(start) < most {
		for time.Since(start) < most && pending < 32 {
			hooktest.Check(t, a.EP.Post(wrs))
			pending++
		}
		n, err := a.CQ.Wait(ctx, dst)
		hooktest.Check(t, err)
		pending -= n
		bytes += n * int(rem.Len)
	}
	return float64(bytes) / time.Since(start).Seconds()
}

func TestBandwidth(t *testing.T) {
	const limit = 40 << 20
	for name, size := range map[string]int{"small": 16 << 10, "large": 256 << 10} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, delay.Options{Bandwidth: limit, Burst: 64 << 10})
			rem := b.Grant(0, size)
			got := rate(t, a, rem, 500*time.Millisecond)
			for end := time.Now().Add(time.Minute); got < 0.8*limit && time.Now().Before(end); {
				// The host was busy: only what it never reaches is the limiter's fault.
				got = rate(t, a, rem, 500*time.Millisecond)
			}
			t.Logf("%.1f MiB/s", got/(1<<20))
			if got < 0.8*limit || got > 1.2*limit {
				t.Errorf("%.0f bytes per second, want %d", got, limit)
			}
		})
	}
}

// Silent requests count as well: the signalled one behind them waits for their bytes.
func TestBandwidthOfSilentRequests(t *testing.T) {
	a, b := pair(t, delay.Options{Bandwidth: 10 << 20, Burst: 1})
	rem := b.Grant(0, 100<<10)
	start := time.Now()
	for range 10 {
		wr := a.Move(fabric.OpWrite, 1, rem)
		wr.Flags = 0
		a.Post(wr)
	}
	a.Post(a.Move(fabric.OpWrite, 2, rem.Slice(0, 1)))
	a.Next(1)
	if took := time.Since(start); took < 90*time.Millisecond {
		t.Errorf("1000 KiB took %v at 10 MiB/s", took)
	}
}

// Two endpoints share the domain's bandwidth, or have their own.
func TestSharedBandwidth(t *testing.T) {
	for name, c := range map[string]struct {
		per      bool
		min, max time.Duration
	}{
		"shared":       {false, 180 * time.Millisecond, 10 * time.Second},
		"per endpoint": {true, 90 * time.Millisecond, 170 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			net := sim.New(sim.Options{})
			slow := wrap(delay.Options{Bandwidth: 10 << 20, Burst: 1, PerEndpoint: c.per})
			dom, far := slow(t, net.Open()), net.Open()
			var ends [2]*hooktest.End
			var rems [2]fabric.Remote
			for i := range ends {
				ends[i] = hooktest.NewEnd(t, dom, fabric.CQOptions{})
				peer := hooktest.NewEnd(t, far, fabric.CQOptions{})
				l, err := far.Connector().Listen("")
				hooktest.Check(t, err)
				hooktest.Connect(t, ends[i], peer, l)
				rems[i] = peer.Grant(0, 1000<<10)
			}
			took := time.Duration(0)
			// A busy host makes it longer: only what it never reaches is the limiter's fault.
			end := time.Now().Add(time.Minute)
			for took == 0 || took > c.max && time.Now().Before(end) {
				start := time.Now()
				for i, e := range ends {
					e.Post(e.Move(fabric.OpWrite, 1, rems[i]))
				}
				for _, e := range ends {
					e.Next(1)
				}
				took = time.Since(start)
			}
			if took < c.min || took > c.max {
				t.Errorf("twice 1000 KiB took %v at 10 MiB/s", took)
			}
		})
	}
}

// Received bytes are limited at the receiver.
func TestReceivedBandwidth(t *testing.T) {
	a, b := pair(t, delay.Options{Bandwidth: 10 << 20, Burst: 1})
	start := time.Now()
	for i := range uint64(10) {
		a.Recv(i, 100<<10)
	}
	for i := range uint64(10) {
		b.Post(b.Send(i, 100<<10))
	}
	for i, c := range a.Next(10) {
		if c.Context != uint64(i) {
			t.Fatalf("receive %d is %+v", i, c)
		}
	}
	if took := time.Since(start); took < 90*time.Millisecond {
		t.Errorf("1000 KiB took %v at 10 MiB/s", took)
	}
}

// Whatever the delays, each endpoint's requests complete in order, and so do its receives.
func TestOrder(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	a, b := pair(t, delay.Options{
		Seed: seed, Delay: delay.Span{Max: 2 * time.Millisecond},
		Ops: map[fabric.Op]delay.Span{fabric.OpSend: {}},
	})
	rem := b.Grant(0, 64)
	for range 5 {
		for i := range uint64(30) {
			a.Recv(i, 8)
			if i%2 == 0 {
				b.Recv(i, 8)
			}
		}
		for i := range uint64(30) {
			b.Post(b.Send(i, 8))
			if i%2 == 0 {
				a.Post(a.Send(i, 8))
			} else {
				a.Post(a.Move(fabric.OpWrite, i, rem))
			}
		}
		next := map[bool]uint64{}
		for _, c := range a.Next(60) {
			recv := c.Op == fabric.OpRecv
			if c.Err != nil || c.Context != next[recv] {
				t.Fatalf("want %d, got %+v", next[recv], c)
			}
			next[recv]++
		}
		b.Next(45)
	}
}

// The end of a connection lets everything go: nobody waits an hour for a failure.
func TestEndsAtOnce(t *testing.T) {
	hour := delay.Options{Delay: delay.Span{Min: time.Hour}}
	for name, end := range map[string]struct {
		close func(a, b *hooktest.End) error
		want  errs.Kind
	}{
		"closed here":   {func(a, _ *hooktest.End) error { return a.EP.Close() }, errs.Closed},
		"by the peer":   {func(_, b *hooktest.End) error { return b.EP.Close() }, errs.Disconnected},
		"domain closed": {func(a, _ *hooktest.End) error { return a.Dom.Close() }, errs.Closed},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, hour)
			rem := b.Grant(0, 8)
			a.Post(a.Move(fabric.OpWrite, 1, rem))
			a.Recv(2, 8)
			time.Sleep(time.Millisecond)
			a.Empty()
			hooktest.Check(t, end.close(a, b))
			for _, c := range a.Next(2) {
				// The Write was done long ago, unless the host is so busy that it never began.
				if kind := c.ErrKind(); kind != end.want && (c.Op == fabric.OpRecv || kind != errs.OK) {
					t.Errorf("completion %+v", c)
				}
			}
			a.Empty()
		})
	}
}

// A place is held until the completion was handed out, however early the provider was done.
func TestPlacesAreHeld(t *testing.T) {
	a, b := pair(t, delay.Options{Delay: delay.Span{Min: 20 * time.Millisecond}})
	rem := b.Grant(0, 8)
	for i := range uint64(hooktest.Depth) {
		a.Post(a.Move(fabric.OpWrite, i, rem))
	}
	one := []fabric.WR{a.Move(fabric.OpWrite, 99, rem)}
	if err := a.EP.Post(one); errs.KindOf(err) != errs.Again {
		t.Fatalf("one too many: %v", err)
	}
	a.Next(1)
	hooktest.Check(t, a.EP.Post(one))
	hooktest.Check(t, a.EP.Close())
	if err := a.EP.Post(one); errs.KindOf(err) != errs.Closed {
		t.Fatalf("a closed one that is full: %v", err)
	}
	a.Next(hooktest.Depth)
	a.Empty()
}

func TestOptions(t *testing.T) {
	d := sim.New(sim.Options{}).Open()
	for name, opts := range map[string]delay.Options{
		"negative bandwidth": {Bandwidth: -1},
		"negative delay":     {Delay: delay.Span{Min: -1}},
		"endless delay": {Ops: map[fabric.Op]delay.Span{
			fabric.OpSend: {Max: 2 * time.Hour},
		}},
		"negative burst": {Burst: -5},
	} {
		if _, err := delay.New(d, opts); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
