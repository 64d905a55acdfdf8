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

// TestFullOfOthers: where others have all the leases that there may be the oldest of these is asked
// for. Who cannot do without gets one at once.
func TestFullOfOthers(t *testing.T) {
	x, now := table(Options{AllMax: 16})
	for ino := meta.Ino(1); ino <= 16; ino++ {
		x.Grant(1, ino, meta.LeaseRead, false, now)
	}
	if m, _ := x.Grant(2, 20, meta.LeaseWrite, true, now); m != meta.LeaseWrite {
		t.Fatal("who cannot do without gets none")
	}
	if recalls, _, _ := x.Tell(1, 0); len(recalls) != 1 {
		t.Fatalf("%+v", recalls)
	}
	now = now.Add(roomSoon)
	if m, _ := x.Grant(2, 21, meta.LeaseRead, false, now); m != meta.LeaseNone {
		t.Fatal("more leases than the bound")
	}
	x.Grant(2, 21, meta.LeaseRead, false, now) // it was asked for a moment ago
	recalls, _, _ := x.Tell(1, 0)
	if len(recalls) != 2 || recalls[0].Ino != 1 || recalls[1].Ino != 2 {
		t.Fatalf("%+v", recalls)
	}
	for ino := meta.Ino(22); ino < 30; ino++ {
		now = now.Add(roomSoon)
		x.Grant(2, ino, meta.LeaseWrite, true, now)
	}
	if x.count > 18 {
		t.Fatalf("%d leases", x.count)
	}
	recalls, _, _ = x.Tell(1, 0)
	x.Hear(&meta.Listening{Session: 1, Acks: recalls})
	if m, _ := x.Grant(2, 40, meta.LeaseRead, false, now); m != meta.LeaseRead {
		t.Fatal("no room")
	}
}

// TestGone: what is no more is not asked for, and takes no room.
func TestGone(t *testing.T) {
	x, now := table(Options{})
	x.Grant(1, 7, meta.LeaseRead, false, now)
	x.Grant(2, 7, meta.LeaseRead, false, now)
	x.Grant(2, 8, meta.LeaseWrite, false, now)
	x.Gone(7)
	if x.count != 1 || len(x.inodes) != 1 {
		t.Fatalf("%d leases on %d inodes", x.count, len(x.inodes))
	}
	x.Leave(2)
	if !x.Lapsed(8) {
		t.Fatal("a dead session has given its lease back")
	}
	x.Gone(8)
	if x.Lapsed(8) || len(x.inodes) != 0 {
		t.Fatal("what is no more is remembered")
	}
}

// TestJoinAgain: a session that was given up and comes back has no epoch below the one it knew.
func TestJoinAgain(t *testing.T) {
	x, now := table(Options{})
	x.Grant(1, 7, meta.LeaseRead, false, now)
	var c Change
	c.Begin(x, 2, []meta.Ino{7}, false, now)
	x.Expire(now.Add(time.Minute))
	before := x.Epoch(1)
	x.Leave(1)
	x.Join(1)
	if x.Epoch(1) < before || x.First() != x.Epoch(1) {
		t.Fatalf("epochs %d and %d, first %d", before, x.Epoch(1), x.First())
	}
}

// TestFullForLong: a session that always wants more gives its oldest leases back by the hundreds,
// not one with each message.
func TestFullForLong(t *testing.T) {
	x, now := table(Options{SessionMax: 4096})
	messages, ino := 0, meta.Ino(1)
	for ; ino < 20_000; ino++ {
		x.Grant(1, ino, meta.LeaseWrite, true, now)
		if recalls, _, _ := x.Tell(1, 0); len(recalls) > 0 {
			x.Hear(&meta.Listening{Session: 1, Acks: recalls})
			messages++
		}
	}
	if most := int(ino) / (4096 / roomShare); messages == 0 || messages > most {
		t.Errorf("%d messages for %d leases", messages, ino)
	}
}
