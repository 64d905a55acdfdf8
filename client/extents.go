package client

import (
	"context"
	"math"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
)

// ExtentsMax is how many extents one Map returns at most.
const ExtentsMax = 4096

// Map tells which parts of [off, off+n), cut at the end of the file, are data and which are holes,
// reserved ones or others: extents in file offsets, in order, touching each other, each of another
// kind than the one before; at most ExtentsMax, the rest is left out.
func (f *File) Map(ctx context.Context, off, n int64) ([]stripe.Extent, error) {
	if off < 0 || n < 0 {
		return nil, errs.Newf(errs.Invalid, "client.Map", "", "range at %d of %d bytes", off, n)
	}
	if out, done, err := f.mapSmall(ctx, off, n); done {
		return out, errs.Wrap("client.Map", "", err)
	}
	end := f.Size()
	if n < end-off {
		end = off + n
	}
	if off >= end {
		return nil, nil
	}
	var out []stripe.Extent
	err := f.settle(ctx, func(ctx context.Context, g *grant, seq uint64) error {
		m := &mapper{f: f, g: g, seq: seq, end: end, rows: make([]row, g.layout.Width())}
		first := func(s int) error { return m.fetch(ctx, s, g.layout.ObjectSize(s, off)) }
		if err := f.eachStripe(g, first); err != nil {
			return err
		}
		var err error
		out, err = m.walk(ctx, off)
		return err
	})
	return out, errs.Wrap("client.Map", "", err)
}

// mapper weaves the maps of the stripe objects into one of the file.
type mapper struct {
	f    *File
	g    *grant
	seq  uint64
	end  int64
	rows []row
}

// row is a window of one object's map, and the index of the extent that was asked for last.
type row struct {
	extents []stripe.Extent
	index   int
}

// walk goes from change to change. A change of kind at file offset p is the first offset behind
// pos at which any stripe's object turns into the other kind; before it all stripes are alike.
func (m *mapper) walk(ctx context.Context, pos int64) ([]stripe.Extent, error) {
	var out []stripe.Extent
	for pos < m.end && len(out) < ExtentsMax {
		s, objOff, _ := m.g.layout.Locate(pos)
		e, err := m.at(ctx, s, objOff)
		if err != nil {
			return nil, err
		}
		next := m.end
		for s := range m.rows {
			turn, err := m.turn(ctx, s, m.g.layout.ObjectSize(s, pos), e)
			if err != nil {
				return nil, err
			}
			next = min(next, turn)
		}
		e.Off, e.Len = pos, next-pos
		out = append(out, e)
		pos = next
	}
	return out, nil
}

// at returns the extent that holds an object offset.
func (m *mapper) at(ctx context.Context, s int, objOff int64) (stripe.Extent, error) {
	r := &m.rows[s]
	for {
		for r.index > 0 && objOff < r.extents[r.index].Off {
			r.index-- // another stripe turned earlier than where this one was looked ahead to
		}
		for i := r.index; i < len(r.extents) && objOff >= r.extents[i].Off; i++ {
			r.index = i
			if e := r.extents[i]; objOff < e.Off+e.Len {
				return e, nil
			}
		}
		if err := m.fetch(ctx, s, objOff); err != nil {
			return stripe.Extent{}, err
		}
	}
}

// turn finds the file offset at which stripe s, from an object offset on, is not of a kind.
func (m *mapper) turn(ctx context.Context, s int, objOff int64, kind stripe.Extent) (int64, error) {
	l := &m.g.layout
	limit := l.ObjectSize(s, m.end)
	for objOff < limit {
		e, err := m.at(ctx, s, objOff)
		if err != nil {
			return 0, err
		}
		if !e.Same(kind) {
			return l.FileOffset(s, objOff), nil
		}
		objOff = e.Off + e.Len
	}
	return math.MaxInt64, nil
}

// fetch asks a server for the next part of its object's map.
func (m *mapper) fetch(ctx context.Context, s int, from int64) error {
	limit := m.g.layout.ObjectSize(s, m.end)
	if from >= limit {
		return nil
	}
	t := m.f.target(m.g, m.seq, s)
	got, err := m.f.fs.data.Map(ctx, t, from, limit-from)
	if err != nil {
		return err
	}
	if len(got) == 0 || got[0].Off > from || covered(got) <= from {
		return errs.Newf(errs.Protocol, "client.Map", serverName(t.Server),
			"the map does not cover byte %d", from)
	}
	m.rows[s] = row{extents: got}
	return nil
}

func covered(x []stripe.Extent) int64 { return x[len(x)-1].Off + x[len(x)-1].Len }
