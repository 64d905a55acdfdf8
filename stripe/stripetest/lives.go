package stripetest

import (
	"testing"

	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

func livesRise(t testing.TB, c Config) {
	r := newRig(t, c)
	last := r.e.Life()
	if last == 0 {
		t.Fatal("a life has number 0")
	}
	for range 4 {
		for range 3 {
			r.e.NewLife()
			if now := r.e.Life(); now <= last {
				t.Fatalf("life %x comes after %x", now, last)
			}
			last = r.e.Life()
		}
		if c.Reopen == nil {
			continue
		}
		r.reopen() // by a crash and in order, in turn
		if now := r.e.Life(); now <= last {
			t.Fatalf("life %x comes after %x and a restart", now, last)
		}
		last = r.e.Life()
	}
}

// lives wants the object to have been changed in these lives last.
func (r *rig) lives(id stripe.ObjectID, last, before uint64) {
	r.Helper()
	if got, want := r.stat(id).Lives, (stripe.Lives{Last: last, Before: before}); got != want {
		r.Fatalf("lives are %x, want %x", got, want)
	}
}

func livesNoted(t testing.TB, c Config) {
	r := newRig(t, c)
	r.lives(alpha, 0, 0)
	first := r.e.Life()
	r.write(alpha, 0, fill(3<<20, 1)) // on every member
	r.write(alpha, 0, fill(10, 1))
	r.lives(alpha, first, 0)
	changes := []func() error{
		func() error { return r.e.Punch(r.ctx, alpha, 0, 8192, wire.Stamp{}, stripe.Volatile) },
		func() error { return r.e.Zero(r.ctx, alpha, 2<<20, 10, wire.Stamp{}, stripe.Durable) },
		func() error {
			return r.e.WriteSums(r.ctx, alpha, [][]byte{fill(4096, 2)}, 0, nil,
				[]wire.Stamp{{}, numbered(3, 1, 1)}, stripe.Volatile)
		},
		func() error { return r.e.Truncate(r.ctx, alpha, 1<<20, seq(1)) },
		func() error {
			return r.e.WriteAt(r.ctx, alpha, [][]byte{fill(10, 1)}, 0, seq(1), stripe.Durable)
		},
	}
	before := first
	for i, change := range changes {
		r.e.NewLife()
		r.e.NewLife() // in which nothing is done
		r.ok(change())
		now := r.e.Life()
		r.lives(alpha, now, before)
		if i%2 == 0 {
			r.reopen()
		}
		r.lives(alpha, now, before)
		before = now
	}
	r.e.NewLife()
	r.ok(r.e.Remove(r.ctx, alpha))
	r.lives(alpha, 0, 0)
	r.write(alpha, 0, fill(10, 1))
	r.lives(alpha, r.e.Life(), 0)
}

func livesNamed(t testing.TB, c Config) {
	r := newRig(t, c)
	var life [4]uint64
	for i := range life {
		life[i] = r.e.Life()
		r.e.NewLife()
	}
	as := func(i int) wire.Stamp { return wire.Stamp{Life: life[i]} }
	r.writeAs(alpha, 0, fill(10, 1), as(1))
	r.lives(alpha, life[1], 0)
	r.writeAs(alpha, 2<<20, fill(10, 1), as(3))
	r.lives(alpha, life[3], life[1])
	r.ok(r.e.Punch(r.ctx, alpha, 4096, 4096, as(0), stripe.Durable)) // older than both
	r.lives(alpha, life[3], life[1])
	r.writeSums(alpha, 0, fill(4096, 1), as(2))
	r.lives(alpha, life[3], life[2])
	for range 2 {
		r.reopen()
		r.lives(alpha, life[3], life[2])
	}
	r.write(alpha, 0, fill(10, 1))
	now := r.e.Life()
	r.writeAs(alpha, 0, fill(10, 1), as(2)) // between two that are known
	r.lives(alpha, now, life[3])
}
