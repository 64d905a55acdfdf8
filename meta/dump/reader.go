package dump

import (
	"errors"
	"io"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/wire"
)

// Reader reads a dump. What is not one, or is damaged, cut off or followed by something is
// errs.Corrupt; what a newer build wrote errs.Version.
type Reader struct {
	Header
	from  io.Reader
	block []byte
	last  []byte // key
	count uint64
	sums  uint32
	end   bool
}

// NewReader reads the header.
func NewReader(from io.Reader) (*Reader, error) {
	r := &Reader{from: from}
	b, err := r.take(headerBytes)
	if err != nil {
		return nil, err
	}
	d := wire.NewDec(b)
	if string(d.Raw(len(magic))) != magic {
		return nil, corrupt("this is no dump of metadata")
	}
	if v := d.U32(); v != Version {
		return nil, errs.Newf(errs.Version, "dump.Read", "",
			"the dump has version %d, this build knows %d", v, Version)
	}
	r.Format = d.U32()
	r.Cluster = d.U64()
	r.Header.Version = d.U64()
	r.Made = d.I64()
	if d.U32() != sum(b[:headerBytes-4]) {
		return nil, corrupt("the header is damaged")
	}
	return r, nil
}

// take reads n bytes, which are valid until the next call.
func (r *Reader) take(n int) ([]byte, error) {
	if cap(r.block) < n {
		r.block = make([]byte, n)
	}
	b := r.block[:n]
	_, err := io.ReadFull(r.from, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, corrupt("the dump is cut off behind record %d", r.count)
	}
	return b, err
}

// Next calls fn for the records of the next block; they are valid during the call only. It returns
// io.EOF behind the last block, when the end was read and fits all that came before it. An error of
// fn is returned as it is.
func (r *Reader) Next(fn func(Record) error) error {
	if r.end {
		return io.EOF
	}
	kind, err := r.take(1)
	if err != nil {
		return err
	}
	switch kind[0] {
	case kindBlock:
		return r.readBlock(fn)
	case kindEnd:
		return r.readEnd()
	}
	return corrupt("a block of an unknown kind %q behind record %d", kind, r.count)
}

func (r *Reader) readBlock(fn func(Record) error) error {
	b, err := r.take(blockBytes - 1)
	if err != nil {
		return err
	}
	var head [blockBytes]byte
	head[0] = kindBlock
	copy(head[1:], b)
	d := wire.NewDec(head[1:])
	length, count, want := d.U32(), d.U32(), d.U32()
	if length > meta.DumpPageMax {
		return corrupt("a block of %d bytes behind record %d", length, r.count)
	}
	records, err := r.take(int(length))
	if err != nil {
		return err
	}
	if sum(head[:9], records) != want {
		return corrupt("the block behind record %d is damaged", r.count)
	}
	n, last, err := Each(records, r.last, fn)
	if err != nil {
		return err
	}
	if n != int(count) || n == 0 {
		return corrupt("a block of %d records says that it has %d", n, count)
	}
	r.count += uint64(n)
	r.sums = sumOn(r.sums, head[9:])
	r.last = append(r.last[:0], last...)
	return nil
}

func (r *Reader) readEnd() error {
	b, err := r.take(endBytes - 1)
	if err != nil {
		return err
	}
	d := wire.NewDec(b)
	count, sums, want := d.U64(), d.U32(), d.U32()
	if sum([]byte{kindEnd}, b[:endBytes-5]) != want {
		return corrupt("the end is damaged")
	}
	if count != r.count || sums != r.sums {
		return corrupt("%d records were read, the dump had %d, or others", r.count, count)
	}
	if n, err := io.ReadFull(r.from, b[:1]); n != 0 || !errors.Is(err, io.EOF) {
		return corrupt("something follows the end")
	}
	r.end = true
	return io.EOF
}

// Count is how many records were read.
func (r *Reader) Count() uint64 { return r.count }
