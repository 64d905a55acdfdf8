package lease

import (
	"testing"
	"time"

	"github.com/sluice-storage/sluice/meta"
)

func table(opt Options) (*Table, time.Time) {
	opt.Time, opt.Life = 5*time.Second, 1
	t := New(opt)
	t.Join(1)
	t.Join(2)
	return t, time.Unix(100, 0)
}

// TestContention: what is recalled once is granted again at once; what is recalled again and again
// is not, for a while that grows, and is forgotten.
func TestContention(t *testing.T) {
	x, now := table(Options{})
	round := func() (wait time.Duration) {
		for start := now; ; now = now.Add(time.Millisecond) {
			if m, _ := x.Grant(1, 7, meta.LeaseRead, false, now); m == meta.LeaseRead {
				wait = now.Sub(start)
				break
			}
			if now.Sub(start) > time.Minute {
				t.Fatal("it is never granted again")
			}
		}
		var c Change
		if c.Begin(x, 2, []meta.Ino{7}, false, now) == nil {
			t.Fatal("nothing to wait for")
		}
		recalls, _, _ := x.Tell(1, 0)
		if _, ok := x.Hear(&meta.Listening{Session: 1, Acks: recalls}); !ok || len(recalls) != 1 {
			t.Fatalf("%+v", recalls)
		}
		c.End()
		return wait
	}
	var last time.Duration
	for i := range 12 {
		wait := round()
		if i < 2 && wait != 0 {
			t.Fatalf("recall %d: refused for %v", i, wait)
		}
		if wait > refuseMax {
			t.Fatalf("refused for %v", wait)
		}
		last = wait
	}
	if last != refuseMax {
		t.Fatalf("after many recalls it is refused for %v only", last)
	}
	now = now.Add(3 * time.Second)
	x.Expire(now)
	if len(x.inodes) != 0 || len(x.cooling) != 0 {
		t.Fatal("what is calm is not forgotten")
	}
}

// TestSerialsGoOn: after a restart numbers are higher, so that nobody takes an answer of the last
// life for one of this.
func TestSerialsGoOn(t *testing.T) {
	x, now := table(Options{})
	_, before := x.Grant(1, 7, meta.LeaseRead, false, now)
	next := New(Options{Time: time.Second, Life: 2})
	next.Join(1)
	if _, serial := next.Grant(1, 7, meta.LeaseRead, false, now); serial <= before ||
		next.Epoch(1) <= before || serial <= next.Epoch(1) {
		t.Fatalf("serials %d and %d, epoch %d", before, serial, next.Epoch(1))
	}
}

// TestFull: a session with too many leases is asked for the oldest one, and gets a new one when it
// is back.
func TestFull(t *testing.T) {
	x, now := table(Options{SessionMax: 3})
	for ino := meta.Ino(1); ino <= 3; ino++ {
		x.Grant(1, ino, meta.LeaseRead, false, now)
	}
	x.Grant(1, 1, meta.LeaseRead, false, now) // not the oldest any more
	if m, _ := x.Grant(1, 4, meta.LeaseRead, false, now); m != meta.LeaseNone {
		t.Fatal("more leases than the bound")
	}
	recalls, _, _ := x.Tell(1, 0)
	if len(recalls) != 1 || recalls[0].Ino != 2 {
		t.Fatalf("%+v", recalls)
	}
	x.Hear(&meta.Listening{Session: 1, Acks: recalls})
	if m, _ := x.Grant(1, 4, meta.LeaseRead, false, now); m != meta.LeaseRead {
		t.Fatal("no room")
	}
}
