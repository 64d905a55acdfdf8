package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// roundMin is the shortest measurement that still says something.
const roundMin = 20 * time.Millisecond

const firstMax = 10 // see RunAll

// RunAll measures cases within the budget: if they do not fit, every measurement is made shorter;
// if single ones take longer than they should (a program that has to be started, an emulated
// machine), there are fewer rounds; and when the time is over, what is left is left out, unless the
// budget says that all were asked for by name: then each of them has at least one short round.
// What comes first may take firstMax times as long as all should, because a bench that prints
// nothing is of no use. Cases that are First come first; the rows come in the order of the cases.
func RunAll(ctx context.Context, b Budget, cases []Case) ([]Row, error) {
	begin := time.Now()
	limit := begin.Add(b.Total * 5 / 4) // for what has begun
	left := 0
	for i := range cases {
		left += len(cases[i].Contenders)
	}
	b.Round = b.roundFor(left)
	found := make([][]Row, len(cases))
	var late []string
	for k, i := range order(cases) {
		c := &cases[i]
		part, n := b, len(c.Contenders)
		if b.Total > 0 {
			rest := b.Total - time.Since(begin)
			if rest <= 0 && !b.All {
				late = append(late, c.Name)
				continue
			}
			part.Total = max(rest*time.Duration(n)/time.Duration(left), 1)
			if c.First {
				part.Total *= 2
			}
		}
		left -= n
		until := limit
		if k == 0 {
			until = begin.Add(b.Total * firstMax)
		}
		rows, err := c.runUntil(ctx, part, until)
		if err != nil {
			return nil, err
		}
		if rows == nil {
			late = append(late, c.Name)
		}
		found[i] = rows
	}
	if len(late) > 0 {
		b.note("left out, because the time was over: %s", strings.Join(late, ", "))
	}
	return slices.Concat(found...), nil
}

// runUntil is Run that gives up at a limit, if the budget has one: no rows, and no error.
func (c *Case) runUntil(ctx context.Context, b Budget, limit time.Time) ([]Row, error) {
	if b.Total == 0 || b.All {
		return c.Run(ctx, b)
	}
	short, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	rows, err := c.Run(short, b)
	if err != nil && short.Err() != nil && ctx.Err() == nil {
		return nil, nil
	}
	return rows, err
}

// order is the order in which the cases are measured.
func order(cases []Case) []int {
	var first, later []int
	for i := range cases {
		if cases[i].First {
			first = append(first, i)
		} else {
			later = append(later, i)
		}
	}
	return append(first, later...)
}

// roundFor is how long one measurement may last if there are so many contenders.
func (b Budget) roundFor(contenders int) time.Duration {
	if b.Total == 0 || contenders == 0 {
		return b.Round
	}
	quarters := time.Duration(contenders * (4*b.Rounds + 1)) // warming up takes one of them
	return max(roundMin, min(b.Round, b.Total*4/quarters))
}

func (b Budget) note(format string, args ...any) {
	if b.Note != nil {
		b.Note(fmt.Sprintf(format, args...))
	}
}
