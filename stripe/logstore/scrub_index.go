package logstore

import (
	"bytes"
	"context"
	"fmt"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe/device"
)

// The index is on the disk twice. A scrub reads both copies, so that a damaged one is found as long
// as the other is whole: the page is written again by the next checkpoint.

// clusterPagesLocked and slotPagesLocked are the pages in use.
func (m *member) clusterPagesLocked() pageRange { return pagesOf(0, int64(m.super.clusterHigh)) }

func (m *member) slotPagesLocked() pageRange {
	return pagesOf(int64(m.g.clusters), int64(m.super.slotHigh))
}

// index scrubs pages of the index.
func (r *scrubRun) index(ctx context.Context, x pageRange) error {
	again := false
	for first := x.first; first < x.end; first += scrubBytes / blockBytes {
		r.tell()
		if err := r.pace(ctx); err != nil {
			return err
		}
		n := min(x.end-first, scrubBytes/blockBytes)
		bad, err := r.pages(first, n)
		if err != nil {
			return err
		}
		again = again || bad
		r.done.Bytes += uint64(2 * n * blockBytes)
	}
	if again {
		r.m.wantCheckpoint()
	}
	return nil
}

// pages looks at both copies of n pages, while no checkpoint writes any.
func (r *scrubRun) pages(first, n int64) (bad bool, err error) {
	m := r.m
	m.checkpointing.Lock()
	defer m.checkpointing.Unlock()
	m.mu.Lock()
	closed := m.closing
	m.mu.Unlock()
	if closed {
		return false, errs.New(errs.Closed, "logstore.Scrub", m.dev.Name(), nil)
	}
	var ops [2]device.Op
	bufs := [2][]byte{r.buf[:n*blockBytes], r.second[:n*blockBytes]}
	for side := range ops {
		ops[side] = device.Op{Kind: device.Read, Off: m.g.tableAt[side] + first*blockBytes,
			Bufs: [][]byte{bufs[side]}}
	}
	m.dev.Do([]*device.Op{&ops[0], &ops[1]})
	for side := range ops {
		if err := ops[side].Err; err != nil {
			r.report(Problem{Device: m.dev.Name(), What: fmt.Sprintf("pages %d to %d of copy %d: %v: "+
				"replace the disk", first, first+n-1, side, err)})
			unreadable(bufs[side], err)
		}
	}
	for i := range n {
		one := page{number: uint32(first + i), buf: bufs[0][i*blockBytes : (i+1)*blockBytes]}
		two := page{number: one.number, buf: bufs[1][i*blockBytes : (i+1)*blockBytes]}
		if r.page(&one, &two, ops[0].Err != nil || ops[1].Err != nil) {
			bad = true
		}
	}
	return bad, nil
}

// page compares the copies of one page and has it written again where one is damaged. After a crash
// they may differ: the next checkpoint writes both.
func (r *scrubRun) page(one, two *page, told bool) (bad bool) {
	whole := [2]bool{pageValid(one), pageValid(two)}
	if whole[0] && whole[1] && (r.m.looking || bytes.Equal(one.buf, two.buf)) {
		return false
	}
	r.m.mu.Lock()
	r.m.table.change(int64(one.number) * tableEntries)
	r.m.mu.Unlock()
	if told {
		return true
	}
	what := "differs from the other"
	copyNo := 1
	if !whole[0] || !whole[1] {
		what = "does not verify"
		if !whole[0] {
			copyNo = 0
		}
	}
	r.report(Problem{Device: r.m.dev.Name(), What: fmt.Sprintf("page %d: copy %d %s: a scrub repairs "+
		"it", one.number, copyNo, what)})
	return true
}
