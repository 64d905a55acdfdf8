package server

import (
	"context"
	"slices"

	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/stripe"
)

// list returns a page of the objects that the store has. Stores list in no order, so each page
// scans all of them: paging through a large store is slow.
func (s *Server) list(ctx context.Context, c *msg.Call, w *work) error {
	after := w.req.Target.Object
	page := make([]stripe.ObjectID, 0, iod.InfosMax+1)
	err := s.cfg.Store.List(ctx, func(i stripe.Info) bool {
		if i.ID.Compare(after) <= 0 {
			return true
		}
		at, _ := slices.BinarySearchFunc(page, i.ID, stripe.ObjectID.Compare)
		if at < iod.InfosMax {
			page = slices.Insert(page, at, i.ID)
			page = page[:min(len(page), iod.InfosMax)]
		}
		return true
	})
	if err != nil {
		return err
	}
	iod.AppendObjects(&w.reply, page)
	return ignoreDead(c.Reply(w.reply.B, 0))
}
