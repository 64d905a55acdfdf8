package pebblekv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The end of a table, which nothing in pebble's format of this version covers with a checksum:
//
//	0      1                                    41        45        53
//	| type | metaindex handle | index handle | 0 | version | magic   |
//	  u8     varint, varint     varint, varint     u32 LE    8 bytes
//
// A flipped bit of type or version would make pebble read blocks by other rules than they were
// written by, and that can panic. A handle, the offset and the length of a block, may be wrong: the
// block has a checksum.
const (
	tableSuffix   = ".sst"
	footerBytes   = 53
	footerVersion = 41 // offset
	tableVersion  = 5  // of pebble.FormatColumnarBlocks
	tableSums     = 1  // CRC-32C
	tableMagic    = "\xf0\x9f\xaa\xb3\xf0\x9f\xaa\xb3"
)

// Open keeps tables with a damaged end from pebble. A table is opened once and then kept open, so
// that reading its end twice costs little.
func (g *guard) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := g.FS.Open(name, opts...)
	if err != nil || !strings.HasSuffix(name, tableSuffix) {
		return f, err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	at := max(info.Size()-footerBytes, 0)
	var b [footerBytes]byte
	n, err := f.ReadAt(b[:], at)
	if err != nil && !errors.Is(err, io.EOF) {
		return f, nil // pebble will find the same
	}
	if err := checkFooter(b[:n], uint64(info.Size())); err != nil {
		_ = f.Close()
		return nil, damaged(g.FS, g.PathDir(name), g.PathBase(name), at, "%v", err)
	}
	return f, nil
}

// checkFooter tells whether a table of size bytes that ends with b ends as pebble writes it.
func checkFooter(b []byte, size uint64) error {
	if len(b) < footerBytes {
		return fmt.Errorf("the table is shorter than its footer")
	}
	version := binary.LittleEndian.Uint32(b[footerVersion:])
	magic := string(b[footerBytes-len(tableMagic):])
	if b[0] != tableSums || version != tableVersion || magic != tableMagic {
		return fmt.Errorf("the table's footer does not verify (checksums of kind %d, version %d)",
			b[0], version)
	}
	rest := b[1:footerVersion]
	for range 2 {
		offset, n := binary.Uvarint(rest)
		if n <= 0 || offset > size {
			return fmt.Errorf("the table's footer names a block outside of the file")
		}
		length, m := binary.Uvarint(rest[n:])
		if m <= 0 || length > size-offset {
			return fmt.Errorf("the table's footer names a block outside of the file")
		}
		rest = rest[n+m:]
	}
	for _, c := range rest {
		if c != 0 {
			return fmt.Errorf("the table's footer does not verify")
		}
	}
	return nil
}
