// Package dump is the form of a backup of the metadata: all records of one moment, in the order of
// their keys, in blocks with checksums. It knows neither what the records mean nor where they come
// from or go to, and does no I/O of its own: a Writer writes to an io.Writer and a Reader reads
// from an io.Reader, in memory for one block.
//
// A dump is portable: it holds the keys and values of package meta/store and nothing of an engine,
// so that it can be restored into any engine by a build that knows the store's format.
//
// Read dump.go for the form, then writer.go and reader.go.
package dump

import (
	"bytes"
	"hash/crc32"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/wire"
)

// Version is the version of the form. A reader refuses a higher one.
const Version = 1

// A dump is a header, blocks, and an end. Numbers are big-endian, checksums CRC-32C.
//
//	header  0                       20         24        28          36             44       52
//	        |"sluice metadata dump" |version 4 |format 4 |cluster 8 |store version 8 |made 8 |sum 4 |
//
//	block   0     1         5        9      13
//	        |'B' |length 4 |count 4 |sum 4 |records, length bytes |
//
//	end     0     1        9        13
//	        |'E' |count 8 |sums 4 |sum 4 |
//
//	record  |key length 2 |key |value length 4 |value |
//
// The sum of a header or an end covers all that stands before it; that of a block its kind, length,
// count and records. count in the end is the number of all records, and sums the checksum over the
// sums of all blocks, four bytes each, in their order: so no block can be missing, doubled or
// moved. Keys rise from each record to the next, also from block to block. Nothing follows the end.
const (
	magic       = "sluice metadata dump"
	headerBytes = len(magic) + 4 + 4 + 8 + 8 + 8 + 4
	blockBytes  = 1 + 4 + 4 + 4
	endBytes    = 1 + 8 + 4 + 4
	recordBytes = 2 + 4 // and its key and value

	kindBlock = 'B'
	kindEnd   = 'E'
)

// valueMax bounds a value: an extended attribute is the largest, by far.
const valueMax = 256 << 10

// Header says what a dump is of.
type Header struct {
	Format  uint32 // of the store: store.Format
	Cluster uint64
	Version uint64 // of the key-value store, when the dump was begun
	Made    int64  // Unix nanoseconds
}

// Record is one key with its value.
type Record struct{ Key, Value []byte }

// Append adds a record to the records of a block or a page.
func (r *Record) Append(b []byte) []byte {
	e := wire.Enc{B: b}
	e.U16(uint16(len(r.Key)))
	e.Raw(r.Key)
	e.Bytes(r.Value)
	return e.B
}

// Bytes is what Append adds.
func (r *Record) Bytes() int { return recordBytes + len(r.Key) + len(r.Value) }

// Each calls fn for the records of a block, which point into it, as long as it returns no error.
// Records that are malformed or whose keys do not rise above after and each other are errs.Corrupt.
func Each(records, after []byte, fn func(r Record) error) (count int, last []byte, err error) {
	d := wire.NewDec(records)
	for len(d.Rest()) > 0 {
		r := Record{Key: d.Raw(int(d.U16()))}
		r.Value = d.Bytes(valueMax)
		switch {
		case d.Err() != nil:
			return count, after, corrupt("a record is malformed: %w", d.Err())
		case len(r.Key) == 0 || len(r.Key) > meta.DumpKeyMax:
			return count, after, corrupt("a key of %d bytes", len(r.Key))
		case bytes.Compare(r.Key, after) <= 0:
			return count, after, corrupt("key %q follows key %q", r.Key, after)
		}
		if err := fn(r); err != nil {
			return count, after, err
		}
		after = r.Key
		count++
	}
	return count, after, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(parts ...[]byte) (crc uint32) {
	for _, p := range parts {
		crc = sumOn(crc, p)
	}
	return crc
}

// sumOn goes on with a checksum.
func sumOn(crc uint32, p []byte) uint32 { return crc32.Update(crc, castagnoli, p) }

func corrupt(format string, args ...any) error {
	return errs.Newf(errs.Corrupt, "dump.Read", "", format, args...)
}
