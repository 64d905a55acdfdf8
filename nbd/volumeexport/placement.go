package volumeexport

import (
	"context"

	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/nbd"
)

// PlacementContext is the metadata context that tells where the bytes of a volume lie: the lowest 8
// bits of the state are the number of the stripe, those above the id of its I/O server.
const PlacementContext = "sluice:placement"

var _ nbd.Contexter = (*Volume)(nil)

// Contexts implements nbd.Contexter.
func (v *Volume) Contexts() []nbd.Context {
	return []nbd.Context{{Name: PlacementContext, Status: func(
		_ context.Context, off, length int64, most int, dst []nbd.Status,
	) ([]nbd.Status, error) {
		return placement(&v.layout, off, length, most, dst), nil
	}}}
}

// placement appends one run for each stripe unit, or one for all where there is one server.
func placement(l *layout.Layout, off, length int64, most int, dst []nbd.Status) []nbd.Status {
	for end := off + length; off < end && most > 0; most-- {
		stripe, _, run := l.Locate(off)
		if l.Width() == 1 {
			run = end - off
		}
		dst = append(dst, nbd.Status{Len: run, Flags: l.Servers[stripe]<<8 | uint32(stripe)})
		off += run
	}
	return dst
}
