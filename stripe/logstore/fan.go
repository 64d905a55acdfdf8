package logstore

import (
	"context"
	"errors"
	"sync"

	"github.com/sluice-storage/sluice/stripe"
)

// fan is one request over several members, or several records, kept for the next: it allocates
// nothing but when it is larger than any before.
type fan struct {
	s     *Store
	ctx   context.Context
	op    string
	id    stripe.ObjectID
	in    input
	do    func(f *fan, m *member, p *part) error
	parts []part
	lanes int      // parts of a member at the same time
	bufs  [][]byte // of all parts
	errs  []error  // by member and lane
	wg    sync.WaitGroup
	runs  []func() // by member and lane: what its goroutine does
}

// readLanes is how many parts a member reads at the same time, so that it has the next one to do
// when one is done. Writes come one after the other: the last one says that all are there.
const readLanes = 2

// part is what one member has of a request.
type part struct {
	member int
	off, n int64
	bufs   [][]byte
	sums   []uint32
	turn   int  // how many of its member come before
	last   bool // of its member
}

func (s *Store) fan() *fan {
	if f, ok := s.fans.Get().(*fan); ok {
		return f
	}
	n := len(s.members) * readLanes
	f := &fan{s: s, errs: make([]error, n), runs: make([]func(), n)}
	for i := range f.runs {
		f.runs[i] = func() {
			defer f.wg.Done()
			f.serve(i)
		}
	}
	return f
}

// endFan keeps the fan, and no memory of the caller's.
func (s *Store) endFan(f *fan) {
	clear(f.parts)
	clear(f.bufs)
	clear(f.errs)
	f.ctx, f.in, f.do = nil, input{}, nil
	f.parts, f.bufs = f.parts[:0], f.bufs[:0]
	s.fans.Put(f)
}

// together tells whether a range lies on one member.
func (s *Store) together(off, n int64) bool {
	return len(s.members) == 1 || off%s.unit+n <= s.unit
}

// split cuts the input into parts that lie on one member each, and on a single member are not
// longer than max.
func (f *fan) split(max int64) {
	if len(f.s.members) > 1 {
		max = f.s.unit
	}
	var turns [MembersMax]int
	src, off, left := gather{bufs: f.in.bufs}, f.in.off, f.in.n
	for left > 0 {
		step := min(left, max-off%max)
		p := part{member: f.s.memberOf(f.id, off), off: off, n: step}
		if f.in.sums != nil {
			at := (off - f.in.off) / blockBytes
			p.sums = f.in.sums[at : at+step/blockBytes]
		}
		p.turn = turns[p.member]
		turns[p.member]++
		had := len(f.bufs)
		for n := step; n > 0; {
			b := src.next(int(n))
			f.bufs = append(f.bufs, b)
			n -= int64(len(b))
		}
		p.bufs = f.bufs[had:len(f.bufs):len(f.bufs)]
		f.parts = append(f.parts, p)
		off += step
		left -= step
	}
	for i := range f.parts {
		p := &f.parts[i]
		p.last = p.turn == turns[p.member]-1
	}
}

// run does all parts: those of one member one or a few at a time, members at the same time. The
// caller's goroutine serves the first of them.
func (f *fan) run(lanes int, do func(f *fan, m *member, p *part) error) error {
	f.do, f.lanes = do, lanes
	for i := range f.parts {
		if p := &f.parts[i]; i > 0 && p.turn < lanes {
			f.wg.Add(1)
			go f.runs[p.member*readLanes+p.turn]()
		}
	}
	f.serve(f.parts[0].member * readLanes)
	f.wg.Wait()
	return errors.Join(f.errs...)
}

// serve does the parts of one lane of a member, up to the first that fails.
func (f *fan) serve(i int) {
	member, lane := i/readLanes, i%readLanes
	for k := range f.parts {
		p := &f.parts[k]
		if p.member == member && p.turn%f.lanes == lane && f.errs[i] == nil {
			f.errs[i] = f.do(f, f.s.members[member], p)
		}
	}
}
