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
	bufs  [][]byte // of all parts
	errs  []error  // by member
	wg    sync.WaitGroup
	runs  []func() // by member: what its goroutine does
}

// part is what one member has of a request.
type part struct {
	member int
	off, n int64
	bufs   [][]byte
	sums   []uint32
	last   bool // of its member
}

func (s *Store) fan() *fan {
	if f, ok := s.fans.Get().(*fan); ok {
		return f
	}
	f := &fan{s: s, errs: make([]error, len(s.members)), runs: make([]func(), len(s.members))}
	for i := range f.runs {
		f.runs[i] = func() {
			defer f.wg.Done()
			f.member(i)
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
	return len(s.members) == 1 || off%chunkOfMember+n <= chunkOfMember
}

// split cuts the input into parts that lie on one member each, and on a single member are not
// longer than max.
func (f *fan) split(max int64) {
	if len(f.s.members) > 1 {
		max = chunkOfMember
	}
	src, off, left := gather{bufs: f.in.bufs}, f.in.off, f.in.n
	for left > 0 {
		step := min(left, max-off%max)
		p := part{member: f.s.memberOf(f.id, off), off: off, n: step}
		if f.in.sums != nil {
			at := (off - f.in.off) / blockBytes
			p.sums = f.in.sums[at : at+step/blockBytes]
		}
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
	members := uint64(0) // a bit for each that was met: MembersMax is 64
	for i := len(f.parts) - 1; i >= 0; i-- {
		bit := uint64(1) << f.parts[i].member
		f.parts[i].last = members&bit == 0
		members |= bit
	}
}

// run does all parts: those of one member one after the other, members at the same time. The
// caller's goroutine serves one of them.
func (f *fan) run(do func(f *fan, m *member, p *part) error) error {
	f.do = do
	own := f.parts[0].member
	for i := range f.parts {
		if p := &f.parts[i]; p.last && p.member != own {
			f.wg.Add(1)
			go f.runs[p.member]()
		}
	}
	f.member(own)
	f.wg.Wait()
	return errors.Join(f.errs...)
}

// member does the parts of one member, up to the first that fails.
func (f *fan) member(i int) {
	for k := range f.parts {
		if p := &f.parts[k]; p.member == i && f.errs[i] == nil {
			f.errs[i] = f.do(f, f.s.members[i], p)
		}
	}
}
