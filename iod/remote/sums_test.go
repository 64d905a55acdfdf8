package remote

import (
	"bytes"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/stripe"
)

// near is a provider whose peers are on this host.
type near struct{ fabric.Domain }

func (n near) Caps() fabric.Caps {
	c := n.Domain.Caps()
	c.SameHost = true
	return c
}

// TestSumsWithinTheHost: data that stays on the host is not summed, in either direction, from the
// moment that the server is known to be here; unless somebody asks for it.
func TestSumsWithinTheHost(t *testing.T) {
	for _, always := range []bool{false, true} {
		d := newDouble(t, 1)
		dom, err := tcp.Open(tcp.Options{Linger: 50 * time.Millisecond})
		must(t, err)
		g := newRigOn(t, d, 1, near{dom}, Options{SumNear: always})
		p := bytes.Repeat([]byte{1, 2, 3}, 50<<10)
		must(t, g.write(1, 5, p, stripe.Volatile)) // it finds out where the server is
		count := func() int {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.unsummed
		}
		before := count()
		must(t, g.write(1, 5, p, stripe.Volatile))
		must(t, g.write(1, 5, p, stripe.Durable))
		room, err := g.Reserve(t.Context(), len(p))
		must(t, err)
		copy(room.Bytes(), p)
		_, err = g.WriteKept(t.Context(), g.target(1), 5, room, len(p))
		must(t, err)
		must(t, g.expect(1, 5, p))
		if got, want := count()-before, 4; !always && got != want || always && got != 0 {
			t.Errorf("asked for sums %v: %d of %d requests had none", always, got, want)
		}
		d.mu.Lock()
		d.damageReads = 2
		d.mu.Unlock()
		got, err := g.read(1, 5, int64(len(p)))
		switch {
		case always && errs.KindOf(err) != errs.Corrupt:
			t.Errorf("a damaged read, verified: %v", err)
		case !always && (err != nil || bytes.Equal(got, p)):
			t.Errorf("a damaged read, not verified: %v", err)
		}
	}
}
