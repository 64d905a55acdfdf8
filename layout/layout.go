// Package layout is the arithmetic of striping: which byte of a file lies where in which stripe
// object, and what a structured access of a file means for each of its I/O servers.
//
// It does no I/O and knows neither addresses nor health of servers: a layout names servers by id.
//
// Read layout.go first, then split.go.
package layout

import (
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/wire"
)

// Limits and defaults of a layout.
const (
	UnitMin     = 64 << 10
	UnitMax     = 16 << 20
	UnitDefault = 1 << 20
	WidthMax    = 256
	FileSizeMax = 1 << 60 // so that offset arithmetic never overflows an int64
)

// Layout tells how a file is cut into stripe objects: unit by unit, round robin. Stripe i is one
// sparse object on server Servers[i]; within it the file's units i, i+width, i+2*width .. follow
// each other without gaps.
//
//	file:      |u0|u1|u2|u3|u4|u5|        width 3
//	stripe 0:  |u0|u3|
//	stripe 1:  |u1|u4|
//	stripe 2:  |u2|u5|
type Layout struct {
	Version uint32   // raised by every change; requests carry it
	Unit    int64    // bytes, a multiple of 4096
	Servers []uint32 // ids of the I/O servers
}

// Width is the number of stripe objects.
func (l *Layout) Width() int { return len(l.Servers) }

// Validate refuses layouts that the arithmetic does not hold for.
func (l *Layout) Validate() error {
	bad := func(format string, args ...any) error {
		return errs.Newf(errs.Invalid, "layout.Validate", "", format, args...)
	}
	switch {
	case l.Unit < UnitMin || l.Unit > UnitMax || l.Unit%4096 != 0:
		return bad("stripe unit %d: want a multiple of 4096 from %d to %d", l.Unit, UnitMin, UnitMax)
	case len(l.Servers) == 0 || len(l.Servers) > WidthMax:
		return bad("%d servers: want 1 to %d", len(l.Servers), WidthMax)
	}
	return nil
}

// Equal compares two layouts.
func (l *Layout) Equal(o *Layout) bool {
	return l.Version == o.Version && l.Unit == o.Unit && slices.Equal(l.Servers, o.Servers)
}

// Locate finds a byte of the file: its stripe, its offset in the stripe's object, and how many
// bytes from there on lie in the same unit.
func (l *Layout) Locate(off int64) (stripe int, objOff, run int64) {
	unit, in := off/l.Unit, off%l.Unit
	w := int64(len(l.Servers))
	return int(unit % w), unit/w*l.Unit + in, l.Unit - in
}

// FileOffset is the inverse of Locate.
func (l *Layout) FileOffset(stripe int, objOff int64) int64 {
	row, in := objOff/l.Unit, objOff%l.Unit
	return (row*int64(len(l.Servers))+int64(stripe))*l.Unit + in
}

// FileSize is the smallest size of the file given that the stripe's object has objSize bytes.
func (l *Layout) FileSize(stripe int, objSize int64) int64 {
	if objSize == 0 {
		return 0
	}
	return l.FileOffset(stripe, objSize-1) + 1
}

// ObjectSize is the size of a stripe's object when the file is cut to fileSize: the number of bytes
// of the stripe below it.
func (l *Layout) ObjectSize(stripe int, fileSize int64) int64 {
	w := int64(len(l.Servers))
	full, in := fileSize/l.Unit, fileSize%l.Unit
	size := full / w * l.Unit
	switch last := int64(stripe); {
	case last < full%w:
		size += l.Unit
	case last == full%w:
		size += in
	}
	return size
}

// Append adds the layout to a message.
//
//	|version u32 |unit u64 |count u32 | count x server u32 |
func (l *Layout) Append(e *wire.Enc) {
	e.U32(l.Version)
	e.I64(l.Unit)
	e.U32(uint32(len(l.Servers)))
	for _, s := range l.Servers {
		e.U32(s)
	}
}

// Decode takes a layout off a message; a malformed one fails the message. The layout of a file that
// has none (a directory) is all zero and is accepted as such.
func Decode(d *wire.Dec) Layout {
	l := Layout{Version: d.U32(), Unit: d.Size()}
	n := d.Count(WidthMax, 4)
	if n > 0 {
		l.Servers = make([]uint32, n)
	}
	for i := range l.Servers {
		l.Servers[i] = d.U32()
	}
	if d.Err() == nil && (n != 0 || l.Unit != 0) {
		if err := l.Validate(); err != nil {
			d.Fail(err.Error())
			return Layout{}
		}
	}
	return l
}
