package capi

import (
	"syscall"

	"github.com/sluice-storage/sluice/client"
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

// addAll adds the memory of a pattern, and returns which bytes of it are meant. Mostly it is of one
// allocation: so the memory from the first to the last byte becomes one buffer, and the pieces
// become buffers of their own only where there are gaps between them that are not mapped, or that
// are not all of one loan.
func (u *use) addAll(l *Lib, base uintptr, p *pattern) (seg.Access, error) {
	a := p.at(0)
	span := a.Span()
	if span.Len == 0 {
		return seg.Access{}, nil
	}
	if uint64(base) > bytesMax || span.End() > bytesMax {
		return a, fail(syscall.EFAULT, "%d bytes at %#x are not mapped", span.Len, base)
	}
	if u.add(l, region{base + uintptr(span.Off), uint64(span.Len)}) == nil {
		return p.at(-span.Off), nil
	}
	c := a.Cursor()
	for left := c.Left(); left > 0; left = c.Left() {
		piece, _ := c.Next(left)
		if err := u.add(l, region{base + uintptr(piece.Off), uint64(piece.Len)}); err != nil {
			return a, err
		}
	}
	return seg.Contig(0, a.Len()), nil
}

// transfer is a request by list that was read and looked at.
type transfer struct {
	use
	client.Transfer
}

// readTransfer reads a list request. Its memory is the request's until end.
func (l *Lib) readTransfer(memory, access, hints uintptr) (t transfer, err error) {
	if t.File, err = readAccess(l.space, access, layout.FileSizeMax); err != nil {
		return t, err
	}
	base, p, err := readMemory(l.space, memory)
	if err != nil {
		return t, err
	}
	if t.Parents, err = readHints(l.space, hints); err != nil {
		return t, err
	}
	if n := p.at(0).Len(); n != t.File.Len() {
		return t, fail(syscall.EINVAL, "%d bytes of memory for %d bytes of the file", n, t.File.Len())
	}
	if t.Memory, err = t.addAll(l, base, &p); err != nil {
		t.end(l)
	}
	t.Bufs = t.bufs
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
	return f.transfer(t)
}

func (f *file) writeList(t *transfer) (int64, error) {
	if f.appends {
		return 0, fail(syscall.EINVAL, "the file is open with O_APPEND: its writes have no place")
	}
	t.Write, t.Durable = true, f.durable
	return f.transfer(t)
}

func (f *file) transfer(t *transfer) (int64, error) {
	if t.File.Len() == 0 {
		return 0, nil
	}
	return ended(f.f.Transfer(f.conn.life, &t.Transfer))
}
