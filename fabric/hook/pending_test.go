package hook

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// request is one of the model: its value in Pending is its number.
type request struct {
	number  int
	op      fabric.Op
	context uint64
	silent  bool
}

// TestPendingAgainstModel posts and completes by the contract's rules. With contexts that tell the
// requests apart each completion must find its own post; with others nothing may stay behind.
func TestPendingAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		depth := rapid.IntRange(1, 8).Draw(t, "depth")
		contexts := rapid.SampledFrom([]int{1, 2, 1000}).Draw(t, "contexts")
		exact := contexts == 1000
		p := NewPending[int](depth)
		var open []request // not over
		retired := 0
		for n := range rapid.IntRange(1, 120).Draw(t, "steps") {
			if len(open) < depth && rapid.Bool().Draw(t, "post") {
				r := request{number: n, context: uint64(n % contexts)}
				r.op = rapid.SampledFrom([]fabric.Op{
					fabric.OpSend, fabric.OpWrite, fabric.OpRead,
				}).Draw(t, "op")
				r.silent = rapid.Bool().Draw(t, "silent")
				flags := fabric.FlagSignaled
				if r.silent {
					flags = 0
				}
				retired += p.Add(r.op, flags, r.context, n)
				open = append(open, r)
				continue
			}
			i := pick(t, open)
			if i < 0 {
				continue
			}
			r := open[i]
			open = append(open[:i:i], open[i+1:]...)
			c := fabric.Completion{Op: r.op, Context: r.context}
			if rapid.IntRange(0, 5).Draw(t, "fails") == 0 {
				c.Err = errs.New(errs.Perm, "", "", nil)
			}
			if r.silent && c.Err == nil {
				continue // over, and nobody hears of it
			}
			got, gone, ok := p.Done(&c, func(v int) {
				for _, o := range open {
					certain := exact && o.op != fabric.OpRead && r.op != fabric.OpRead
					if o.number == v && certain {
						t.Fatalf("%d is called over, and is not", v)
					}
				}
			})
			retired += gone
			// The failure of a silent one may come behind its time.
			if exact && (ok && got != r.number || !ok && !r.silent) {
				t.Fatalf("completion of %+v: found %v, %d", r, ok, got)
			}
		}
		if p.Len() > 2*depth {
			t.Fatalf("%d remembered, depth %d", p.Len(), depth)
		}
		drain(t, &p, open)
	})
}

// drain completes what is open and one more request behind it: then nothing is left.
func drain(t *rapid.T, p *Pending[int], open []request) {
	for _, r := range open {
		if !r.silent {
			p.Done(&fabric.Completion{Op: r.op, Context: r.context}, nil)
		}
	}
	p.Add(fabric.OpSend, fabric.FlagSignaled|fabric.FlagFence, 5000, -1)
	v, _, ok := p.Done(&fabric.Completion{Op: fabric.OpSend, Context: 5000}, nil)
	if !ok || v != -1 || p.Len() != 0 {
		t.Fatalf("%d left, the last one found: %v", p.Len(), ok)
	}
}

// pick chooses what may complete next: the oldest of the Sends and Writes, or any Read.
func pick(t *rapid.T, open []request) int {
	var may []int
	first := true
	for i, r := range open {
		if r.op == fabric.OpRead {
			may = append(may, i)
		} else if first {
			may = append(may, i)
			first = false
		}
	}
	if len(may) == 0 {
		return -1
	}
	return rapid.SampledFrom(may).Draw(t, "which")
}

// Equal contexts: the oldest is taken, and successes are not taken for silent requests.
func TestPendingEqualContexts(t *testing.T) {
	p := NewPending[string](8)
	p.Add(fabric.OpWrite, 0, 1, "silent")
	p.Add(fabric.OpWrite, fabric.FlagSignaled, 1, "first")
	p.Add(fabric.OpWrite, fabric.FlagSignaled, 1, "second")
	c := fabric.Completion{Op: fabric.OpWrite, Context: 1}
	for i, want := range []string{"first", "second"} {
		got, retired, ok := p.Done(&c, nil)
		if got != want || !ok || retired != 1-i {
			t.Fatalf("got %q, %d retired, %v; want %q", got, retired, ok, want)
		}
	}
	if _, _, ok := p.Done(&c, nil); ok || p.Len() != 0 {
		t.Fatalf("found something in nothing; %d left", p.Len())
	}
}

// An endpoint that never signals does not make it grow.
func TestPendingForgetsSilentOnes(t *testing.T) {
	p := NewPending[int](4)
	retired := 0
	for i := range 1000 {
		op := []fabric.Op{fabric.OpWrite, fabric.OpRead}[i%2]
		retired += p.Add(op, 0, uint64(i), i)
		if p.Len() > 8 {
			t.Fatalf("%d remembered", p.Len())
		}
	}
	if retired+p.Len() != 1000 {
		t.Fatalf("%d retired, %d left", retired, p.Len())
	}
	if p.Clear() == 0 || p.Len() != 0 {
		t.Fatal("Clear")
	}
}
