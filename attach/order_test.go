package attach

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/nbd"
)

// slow is a disc of which every change takes longer than the kernel waits.
type slow struct {
	*disc
	writes, trims atomic.Int32
}

const slowness = 3 * time.Second / kernelScale

func (s *slow) WriteAt(ctx context.Context, p []byte, off int64, fua bool) error {
	s.writes.Add(1)
	time.Sleep(slowness)
	return s.disc.WriteAt(ctx, p, off, fua)
}

func (s *slow) Trim(ctx context.Context, off, length int64, fua bool) error {
	s.trims.Add(1)
	time.Sleep(slowness)
	return s.disc.Trim(ctx, off, length, fua)
}

// TestSlowChangesEnd: servers that need longer than the kernel waits are no reason to make a change
// again and again.
func TestSlowChangesEnd(t *testing.T) {
	k, exp := newKernel(t), &slow{disc: newDisc(64 << 10)}
	s := serve(t, options(k, NewLocal(exp, nbd.Config{}, false)))
	defer s.detach(t)
	d := k.disk(s.Index())
	for i := range 3 {
		if err := d.write(int64(i)*512, []byte{byte(i), 7}); err != nil {
			t.Fatal(err)
		}
	}
	if s.Status().Replaced == 0 {
		t.Error("nothing was sent again")
	}
	for i := range 3 {
		if got, err := d.read(int64(i)*512, 2); err != nil || got[0] != byte(i) || got[1] != 7 {
			t.Errorf("%d: %v, %v", i, got, err)
		}
	}
}

// lost is a connection that has ended.
func lost() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// TestWhatWasMadeForNobody: the answer is kept for the same change, and for nothing else.
func TestWhatWasMadeForNobody(t *testing.T) {
	write := func(text string, off int64) *change {
		return &change{what: isWrite, list: []span{{off, int64(len(text))}}, data: [][]byte{[]byte(text)}}
	}
	for name, row := range map[string]struct {
		between, next *change
		again         bool // it is made once more
	}{
		"the same":               {nil, write("abcd", 8), false},
		"other data":             {nil, write("abce", 8), true},
		"another place":          {nil, write("abcd", 9), true},
		"a part of it":           {nil, write("abc", 8), true},
		"durable":                {nil, durable(write("abcd", 8)), true},
		"zeroes":                 {nil, &change{what: isZeroes, list: []span{{8, 4}}}, true},
		"a flush":                {nil, &change{what: isFlush}, true},
		"after a change of it":   {write("x", 10), write("abcd", 8), true},
		"after one beside it":    {write("x", 12), write("abcd", 8), false},
		"after a flush":          {&change{what: isFlush}, write("abcd", 8), false},
		"with one that is known": {nil, two(write("abcd", 8), write("x", 100)), true},
	} {
		t.Run(name, func(t *testing.T) {
			o, made := newOrder(), 0
			link, end := context.WithCancel(context.Background())
			do := func(c *change, link context.Context, fn func()) {
				t.Helper()
				err := o.run(context.Background(), link, c, func(context.Context) error {
					made++
					fn()
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			do(write("abcd", 8), link, end) // its connection ends while it is made
			if row.between != nil {
				do(row.between, context.Background(), func() {})
			}
			before := made
			do(row.next, context.Background(), func() {})
			if again := made > before; again != row.again {
				t.Errorf("made once more: %v", again)
			}
			before = made
			do(row.next, context.Background(), func() {})
			if made == before {
				t.Error("its answer was given twice")
			}
		})
	}
	o := newOrder()
	if err := o.run(context.Background(), lost(), write("a", 0), nil); err != errEnded {
		t.Error(err)
	}
}

func durable(c *change) *change {
	c.what |= isDurable
	return c
}

// two are two writes in one.
func two(a, b *change) *change {
	return &change{what: a.what, list: append(a.list, b.list...), data: append(a.data, b.data...)}
}

// TestRememberedChangesAreBounded: what nobody comes for is forgotten.
func TestRememberedChangesAreBounded(t *testing.T) {
	o := newOrder()
	for i := range 2 * changesMax {
		link, end := context.WithCancel(context.Background())
		c := &change{what: isTrim, list: []span{{int64(i) * 8, 8}}}
		err := o.run(context.Background(), link, c, func(context.Context) error { end(); return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := len(o.made); n != changesMax {
		t.Errorf("%d are remembered", n)
	}
}
