package msg

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
)

// Started is a request that was sent, and whose reply nobody has waited for yet. Finish must
// follow: until then the request, its memory and a credit are the connection's, and Close waits.
type Started struct {
	conn *Conn
	slot *slot
	req  *Request
}

// TryStart is the first half of Call, for who has requests to several servers: one goroutine sends
// all of them, and then waits for one after the other, while their replies come in any order. It
// never waits. ok is false where it would have to, for a credit; and where it fails, too: Call says
// why.
//
// A request with Ready is waited for by nobody: other goroutines poll for it.
//
// Who has started requests and would have to wait for something that another one may hold, a
// credit above all, finishes them first: two that wait for each other's would wait for ever.
func (c *Conn) TryStart(ctx context.Context, req *Request) (st Started, ok bool) {
	window := c.windowOf(req)
	if ctx.Err() != nil || !c.credits.TryTake(1, window) {
		return Started{}, false
	}
	s, err := c.claim(ctx, req, window)
	if err != nil {
		return Started{}, false
	}
	if err := c.submit(ctx, s, req, 0); err != nil {
		_ = c.unsubmit(s, err) // who calls hears it
		return Started{}, false
	}
	if req.Ready != nil && !c.duty.Taken() {
		c.standby() // nobody else may poll; who just leaves the duty sees that this one waits
	}
	return Started{c, s, req}, true
}

// Full tells whether TryStart of a request with n bytes of data would have to wait for a credit.
func (c *Conn) Full(n int64) bool {
	if n <= int64(c.rung.limits.InlineMax) {
		n = 0
	}
	u := c.credits.Usage()
	return u.Waiting > 0 || u.Count >= len(c.slots) ||
		u.Bytes+min(n, int64(c.node.opts.Window)) > int64(c.node.opts.Window)
}

// Finish is the second half of Call: it waits for the reply. It is called once.
func (st *Started) Finish(ctx context.Context, rep *Reply) error {
	if st.conn == nil {
		return errs.Newf(errs.Invalid, "msg.Finish", "", "a request that was not started")
	}
	c := st.conn
	st.conn = nil
	return c.outcomeOf(ctx, st.slot, st.req, rep)
}
