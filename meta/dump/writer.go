package dump

import (
	"io"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/wire"
)

// Writer writes a dump. It keeps nothing of what it was given.
type Writer struct {
	to    io.Writer
	last  []byte // key
	count uint64
	sums  uint32
}

// NewWriter writes the header.
func NewWriter(to io.Writer, h Header) (*Writer, error) {
	e := wire.Enc{B: []byte(magic)}
	e.U32(Version)
	e.U32(h.Format)
	e.U64(h.Cluster)
	e.U64(h.Version)
	e.I64(h.Made)
	e.U32(sum(e.B))
	_, err := to.Write(e.B)
	return &Writer{to: to}, err
}

// Write adds a block: records as Record.Append makes them, whose keys follow all earlier ones.
func (w *Writer) Write(records []byte) error {
	if len(records) == 0 {
		return nil
	}
	if len(records) > meta.DumpPageMax {
		return errs.Newf(errs.TooBig, "dump.Write", "", "a block of %d bytes", len(records))
	}
	count, last, err := Each(records, w.last, func(Record) error { return nil })
	if err != nil {
		return err
	}
	e := wire.Enc{B: []byte{kindBlock}}
	e.U32(uint32(len(records)))
	e.U32(uint32(count))
	crc := sum(e.B, records)
	at := len(e.B)
	e.U32(crc)
	w.sums = sumOn(w.sums, e.B[at:])
	if _, err := w.to.Write(e.B); err != nil {
		return err
	}
	if _, err := w.to.Write(records); err != nil {
		return err
	}
	w.count += uint64(count)
	w.last = append(w.last[:0], last...)
	return nil
}

// Count is how many records were written.
func (w *Writer) Count() uint64 { return w.count }

// Close writes the end. Without it a dump is not complete, and refused.
func (w *Writer) Close() error {
	e := wire.Enc{B: []byte{kindEnd}}
	e.U64(w.count)
	e.U32(w.sums)
	e.U32(sum(e.B))
	_, err := w.to.Write(e.B)
	return err
}
