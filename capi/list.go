package capi

import (
	"syscall"

	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/seg"
)

// use is the memory of one request: looked at, and lent as long as the request takes.
type use struct {
	bufs  [][]byte
	loans []*loan
}

// add looks at memory and makes it the next buffer.
func (u *use) add(l *Lib, r region) error {
	b, err := view(l.space, r.addr, r.n)
	if err != nil || len(b) == 0 {
		return err
	}
	if err := u.hold(l, r.addr, len(b)); err != nil {
		return err
	}
	u.bufs = append(u.bufs, b)
	return nil
}

// hold keeps memory from being given back.
func (u *use) hold(l *Lib, addr uintptr, n int) error {
	loan, err := l.lent.use(addr, n)
	if loan != nil {
		u.loans = append(u.loans, loan)
	}
	return err
}

// end gives all of it back to the program.
func (u *use) end(l *Lib) {
	for _, loan := range u.loans {
		l.lent.done(loan)
	}
	u.loans = nil
}

// addAll adds the pieces of an access. They mostly lie in one allocation: so the memory from the
// first to the last byte is looked at in one step, and piece by piece only where it has gaps.
func (u *use) addAll(l *Lib, base uintptr, a seg.Access) error {
	span := a.Span()
	if span.Len == 0 {
		return nil
	}
	if uint64(base) > bytesMax || span.End() > bytesMax {
		return fail(syscall.EFAULT, "%d bytes at %#x are not mapped", span.Len, base)
	}
	first := base + uintptr(span.Off)
	_, err := l.space.Bytes(first, int(span.Len))
	whole := err == nil
	if whole && u.hold(l, first, int(span.Len)) != nil {
		whole = false // it reaches over several loans, or one that is over: see which pieces do
	}
	u.bufs = make([][]byte, 0, a.Pieces())
	c := a.Cursor()
	for left := c.Left(); left > 0; left = c.Left() {
		p, _ := c.Next(left)
		at := base + uintptr(p.Off)
		if whole {
			u.bufs = append(u.bufs, l.space.Trusted(at, int(p.Len)))
		} else if err := u.add(l, region{at, uint64(p.Len)}); err != nil {
			return err
		}
	}
	return nil
}

// transfer is a request by list that was read and looked at.
type transfer struct {
	use
	access seg.Access
}

// readTransfer reads a list request. Its memory is the request's until end.
func (l *Lib) readTransfer(memory, access, hints uintptr) (t transfer, err error) {
	if t.access, err = readAccess(l.space, access, layout.FileSizeMax); err != nil {
		return t, err
	}
	base, m, err := readMemory(l.space, memory)
	if err != nil {
		return t, err
	}
	if m.Len() != t.access.Len() {
		return t, fail(syscall.EINVAL, "%d bytes of memory for %d bytes of the file", m.Len(),
			t.access.Len())
	}
	if _, err = readHints(l.space, hints); err != nil {
		return t, err
	}
	if err = t.addAll(l, base, m); err != nil {
		t.end(l)
	}
	return t, err
}

// ReadList is sluice_read_list.
func (l *Lib) ReadList(h Handle, memory, access, hints uintptr) (int64, error) {
	return l.list(h, memory, access, hints, (*file).readList)
}

// WriteList is sluice_write_list.
func (l *Lib) WriteList(h Handle, memory, access, hints uintptr) (int64, error) {
	return l.list(h, memory, access, hints, (*file).writeList)
}

func (l *Lib) list(h Handle, memory, access, hints uintptr,
	move func(*file, *transfer) (int64, error)) (int64, error) {
	f, err := l.file(h)
	if err != nil {
		return 0, err
	}
	defer f.conn.leave()
	t, err := l.readTransfer(memory, access, hints)
	if err != nil {
		return 0, err
	}
	defer t.end(l)
	return move(f, &t)
}

func (f *file) readList(t *transfer) (int64, error) {
	return ended(f.f.ReadList(f.conn.life, t.bufs, t.access))
}

func (f *file) writeList(t *transfer) (int64, error) {
	if f.appends {
		return 0, fail(syscall.EINVAL, "the file is open with O_APPEND: its writes have no place")
	}
	n, err := f.f.WriteList(f.conn.life, t.bufs, t.access)
	if err == nil && f.durable {
		err = f.f.Sync(f.conn.life)
	}
	return n, err
}
