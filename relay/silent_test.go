package relay

import (
	"context"

	"github.com/sluice-storage/sluice/fabric"
)

// silent is a peer to whom all is well.
type silent struct{}

func (silent) Deliver(context.Context, int64, []fabric.Sge, []uint32) error { return nil }
func (silent) Fetch(context.Context, int64, []fabric.Sge) error             { return nil }
func (silent) Check(int64, []uint32) error                                  { return nil }

// counting counts chunks and looks at nothing else.
type counting struct{ *peer }

func (c counting) Deliver(_ context.Context, at int64, data []fabric.Sge, _ []uint32) error {
	var n int64
	for _, s := range data {
		n += int64(len(s.Buf))
	}
	c.count(at, n)
	return nil
}
