package main

import (
	"context"
	"encoding/json"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta/server"
	"github.com/sluice-storage/sluice/meta/store"
	"github.com/sluice-storage/sluice/msg"
)

// opMetaStatus asks the metadata service about itself: far above the operations of package meta,
// whose numbers grow from below. The answer's body is an admin.Meta as JSON, for people.
const opMetaStatus = 0xff00

// metaHandler serves names, and tells how it is doing.
type metaHandler struct {
	names  *store.Store
	server *server.Server
}

func newMetaHandler(names *store.Store, opts server.Options) (*metaHandler, error) {
	s, err := server.New(names, opts)
	return &metaHandler{names, s}, err
}

// Serve implements msg.Handler.
func (h *metaHandler) Serve(ctx context.Context, c *msg.Call) {
	if c.Header().Op != opMetaStatus {
		h.server.Serve(ctx, c)
		return
	}
	body, err := h.status()
	if err == nil && len(body) > c.MaxReply() {
		err = errs.Newf(errs.TooBig, "meta.Status", "", "%d bytes", len(body))
	}
	// Whoever asked is gone if the answer cannot be delivered.
	if err != nil {
		_ = c.Fail(err)
		return
	}
	_ = c.Reply(body, 0)
}

func (h *metaHandler) status() ([]byte, error) {
	st, err := h.names.Status()
	if err != nil {
		return nil, err
	}
	m := admin.Meta{Sessions: st.Sessions, Handles: st.Handles, Files: st.Files, Queued: st.Queued,
		Removed: st.Removed, Ops: []admin.OpUse{}}
	for _, c := range h.server.Status() {
		m.Ops = append(m.Ops, admin.OpUse{Op: c.Op, Calls: c.Calls, Failed: c.Failed,
			MeanUs: float64(c.Time.Microseconds()) / float64(c.Calls)})
	}
	return json.Marshal(m)
}

// askMeta is the other side.
func askMeta(ctx context.Context, node *msg.Node, addr string) (*admin.Meta, error) {
	conn, err := node.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var rep msg.Reply
	if err := conn.Call(ctx, &msg.Request{Op: opMetaStatus}, &rep); err != nil {
		return nil, err
	}
	m := &admin.Meta{}
	if err := json.Unmarshal(rep.Body, m); err != nil {
		return nil, errs.New(errs.Protocol, "meta.Status", addr, err)
	}
	return m, nil
}
