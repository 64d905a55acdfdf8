package mover

import (
	"sort"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
)

// Method is how a Put is done.
type Method = mem.Method

// The methods.
const (
	Auto   = mem.Auto   // as the table says
	Gather = mem.Gather // one write per segment, nothing packed
	Pack   = mem.Pack   // packed by a copy, one write, unpacked by a copy
)

// Row says when packing pays for moves of at least Fragments fragments (runs of bytes that are
// contiguous at both sides).
type Row struct {
	Fragments int
	PackBelow int // bytes: packing wins where the mean fragment is shorter; 0 never
}

// Table says which method wins, by shape. It is measured by Tune.
type Table struct {
	Rows []Row // by Fragments, ascending; for fewer than the first the first holds
}

// Method returns the faster one for a move of fragments and bytes. A single fragment is never
// packed.
func (t *Table) Method(fragments int, bytes int64) Method {
	if fragments < 2 || len(t.Rows) == 0 {
		return Gather
	}
	i := sort.Search(len(t.Rows), func(i int) bool { return t.Rows[i].Fragments > fragments })
	if bytes/int64(fragments) < int64(t.Rows[max(i-1, 0)].PackBelow) {
		return Pack
	}
	return Gather
}

func (t *Table) validate() error {
	for i, r := range t.Rows {
		if r.Fragments < 1 || r.PackBelow < 0 || i > 0 && r.Fragments <= t.Rows[i-1].Fragments {
			return errs.Newf(errs.Invalid, "mover.Table", "", "row %d: %+v", i, r)
		}
	}
	return nil
}

// Defaults are the rows where Tune was not run. With few pieces there is no difference worth two
// copies; with 8 and more the provider says below which length packing pays.
func Defaults(caps fabric.Caps) Table {
	if caps.PackBelow == 0 {
		return Table{}
	}
	return Table{Rows: []Row{{2, 0}, {8, caps.PackBelow}}}
}
