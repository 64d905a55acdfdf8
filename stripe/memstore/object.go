package memstore

import (
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
)

// pageBytes is the unit of allocation: small enough for sparse objects, large enough that a
// megabyte costs few map lookups.
const pageBytes = 16 << 10

type page [pageBytes]byte

// budget counts pages against Options.MaxBytes.
type budget struct {
	total int64
	left  atomic.Int64
}

// take reserves n pages, all or none.
func (b *budget) take(n int64) bool {
	if b.left.Add(-n) >= 0 {
		return true
	}
	b.left.Add(n)
	return false
}

// object is one sparse object. A page that is missing reads as zeroes; bytes of a page beyond size
// are zeroes always, so that growing shows nothing old.
type object struct {
	budget *budget

	mu       sync.RWMutex
	size     int64
	truncSeq uint64
	epoch    uint32
	lives    stripe.Lives
	pages    map[int64]*page
	held     map[int64]bool // reserved, and not written since: they count as pages
}

// eachPage calls fn for every page that [off, off+n) touches, with the part of the page.
func eachPage(off, n int64, fn func(index int64, lo, hi int64)) {
	for n > 0 {
		lo := off % pageBytes
		hi := min(lo+n, pageBytes)
		fn(off/pageBytes, lo, hi)
		off += hi - lo
		n -= hi - lo
	}
}

func (o *object) read(bufs [][]byte, off int64) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	for _, b := range bufs {
		eachPage(off, int64(len(b)), func(index, lo, hi int64) {
			if p := o.pages[index]; p != nil {
				copy(b, p[lo:hi])
			} else {
				clear(b[:hi-lo])
			}
			b = b[hi-lo:]
			off += hi - lo
		})
	}
}

func (o *object) write(id stripe.ObjectID, bufs [][]byte, off, n int64, st request) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if st.repeated() {
		return nil
	}
	if err := stripe.CheckStamp("", id, o.truncSeq, st.Stamp); err != nil {
		return err
	}
	if err := o.growLocked(off, n); err != nil {
		return err
	}
	for _, b := range bufs {
		eachPage(off, int64(len(b)), func(index, lo, hi int64) {
			copy(o.pages[index][lo:hi], b)
			b = b[hi-lo:]
			off += hi - lo
		})
	}
	if n > 0 {
		o.size = max(o.size, off)
	}
	o.changedLocked(st)
	st.applied()
	return nil
}

// changedLocked notes whose the last change was, and of when.
func (o *object) changedLocked(st request) {
	o.epoch = st.Epoch
	if st.Life == 0 {
		st.Life = st.s.life.Load()
	}
	o.lives.Note(st.Life)
}

// growLocked allocates the missing pages of the range, all or none.
func (o *object) growLocked(off, n int64) error {
	var missing int64
	if n > o.budget.total*pageBytes {
		return errs.NoSpace // and no walk over more pages than there can be
	}
	eachPage(off, n, func(index, _, _ int64) {
		if o.pages[index] == nil && !o.held[index] {
			missing++
		}
	})
	if !o.budget.take(missing) {
		return errs.NoSpace
	}
	eachPage(off, n, func(index, _, _ int64) {
		if o.pages[index] == nil {
			o.pages[index] = new(page)
			delete(o.held, index)
		}
	})
	return nil
}

func (o *object) truncate(id stripe.ObjectID, size int64, st request) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if st.repeated() {
		return nil
	}
	if err := stripe.CheckStamp("memstore.Truncate", id, o.truncSeq, st.Stamp); err != nil {
		return err
	}
	defer st.applied()
	o.changedLocked(st)
	if st.TruncSeq > 0 && st.TruncSeq == o.truncSeq {
		return nil
	}
	o.truncSeq = st.TruncSeq
	o.freeHeldLocked((size+pageBytes-1)/pageBytes, stripe.MaxObjectBytes)
	if size < o.size {
		o.dropLocked(size, o.size-size, false)
	}
	o.size = size
	return nil
}

// clear makes a range read as zeroes; keep: it keeps its space.
func (o *object) clear(op string, id stripe.ObjectID, off, length int64, st request,
	keep bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if st.repeated() {
		return nil
	}
	if err := stripe.CheckStamp(op, id, o.truncSeq, st.Stamp); err != nil {
		return err
	}
	defer st.applied()
	o.changedLocked(st)
	if !keep {
		o.freeHeldLocked((off+pageBytes-1)/pageBytes, (off+length)/pageBytes)
	}
	o.dropLocked(off, min(length, o.size-off), keep)
	return nil
}

// dropLocked frees the pages that lie inside the range and zeroes the parts of those that do not.
// It walks the pages that exist, since the range may be as long as an object can be. keep: pages
// become reserved ones.
func (o *object) dropLocked(off, n int64, keep bool) {
	end := off + n
	for index, p := range o.pages {
		lo, hi := max(off-index*pageBytes, 0), min(end-index*pageBytes, pageBytes)
		switch {
		case lo >= hi:
		case lo == 0 && (hi == pageBytes || end >= o.size):
			delete(o.pages, index)
			if keep {
				o.holdLocked([]int64{index})
			} else {
				o.budget.left.Add(1)
			}
		default:
			clear(p[lo:hi])
		}
	}
}

// free gives all pages back. The object must be out of reach.
func (o *object) free() {
	o.budget.left.Add(int64(len(o.pages) + len(o.held)))
	o.pages, o.held = nil, nil
}

func (o *object) info(id stripe.ObjectID) stripe.Info {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return stripe.Info{
		ID: id, Size: o.size, Allocated: int64(len(o.pages)+len(o.held)) * pageBytes,
		TruncSeq: o.truncSeq, Epoch: o.epoch, Lives: o.lives,
	}
}
