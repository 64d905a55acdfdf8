package hook

import (
	"context"

	"github.com/sluice-storage/sluice/fabric"
)

// CQ wraps a completion queue.
type CQ struct {
	dom   *Domain
	inner fabric.CQ
}

// NewCQ implements fabric.Domain.
func (d *Domain) NewCQ(opts fabric.CQOptions) (fabric.CQ, error) {
	inner, err := d.inner.NewCQ(opts)
	if err != nil {
		return nil, err
	}
	q := &CQ{dom: d, inner: inner}
	var outer fabric.CQ = q
	if d.layer.CQ != nil {
		outer = d.layer.CQ(q, opts)
	}
	return outer, nil
}

// Inner is the queue below. Its completions name endpoints below, too.
func (q *CQ) Inner() fabric.CQ { return q.inner }

// Poll implements fabric.CQ.
func (q *CQ) Poll(dst []fabric.Completion) int {
	n := q.inner.Poll(dst)
	q.dom.translate(dst[:n])
	return n
}

// Wait implements fabric.CQ.
func (q *CQ) Wait(ctx context.Context, dst []fabric.Completion) (int, error) {
	n, err := q.inner.Wait(ctx, dst)
	q.dom.translate(dst[:n])
	return n, err
}

// Wake implements fabric.CQ.
func (q *CQ) Wake() { q.inner.Wake() }

// Close implements fabric.CQ.
func (q *CQ) Close() error { return q.inner.Close() }

// cqBase is found in whatever embeds a CQ.
func (q *CQ) cqBase() *CQ { return q }

// unwrapCQ gives the queue below, of a queue of this domain.
func (d *Domain) unwrapCQ(cq fabric.CQ) fabric.CQ {
	if w, ok := cq.(interface{ cqBase() *CQ }); ok {
		if q := w.cqBase(); q.dom == d {
			return q.inner
		}
	}
	return cq
}
