package wait

import (
	"context"
	"testing"
)

// lender counts its listeners.
type lender struct {
	context.Context
	lent, returned int
}

func (l *lender) Lend() <-chan struct{} {
	l.lent++
	return l.Done()
}

func (l *lender) Return() { l.returned++ }

func TestFor(t *testing.T) {
	live, dead := context.Background(), canceled()
	for name, c := range map[string]struct {
		ctx   context.Context
		send  bool
		close bool
		late  bool // what is sent comes while For waits
		want  bool
	}{
		"a token":                 {ctx: live, send: true, want: true},
		"a token later":           {ctx: live, send: true, late: true, want: true},
		"closed":                  {ctx: live, close: true, want: true},
		"nothing":                 {ctx: dead},
		"a token and no context":  {ctx: dead, send: true, want: true},
		"a lender":                {ctx: &lender{Context: live}, send: true, late: true, want: true},
		"a lender that has ended": {ctx: &lender{Context: dead}},
		"a lender is not needed":  {ctx: &lender{Context: live}, send: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			ch := make(chan int, 1)
			switch {
			case c.late:
				go func() { ch <- 7 }()
			case c.send:
				ch <- 7
			case c.close:
				close(ch)
			}
			v, ok := For(c.ctx, ch)
			if ok != c.want || ok && c.send && v != 7 {
				t.Fatalf("For is %d, %v", v, ok)
			}
			if l, is := c.ctx.(*lender); is && (l.lent != l.returned || l.lent > 0 && c.send && !c.late) {
				t.Fatalf("lent %d times, returned %d times", l.lent, l.returned)
			}
		})
	}
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
