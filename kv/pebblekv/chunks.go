package pebblekv

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-storage/sluice/errs"
)

// Pebble's logs and manifests are blocks of 32 KiB filled with chunks, none across two blocks; a
// record is one chunk, or a first, some middle and a last one. What is too short for a header at
// the end of a block is zero.
//
//	0    4       6     7
//	|crc |length |type |payload                 types 1 to 4: full, first, middle, last
//	|crc |length |type |log number u32 |payload types 5 to 8: the same, of a log
//
// All numbers are little-endian; the crc is masked as LevelDB does, over type and what follows.
const (
	chunkBlock   = 32 << 10
	chunkHead    = 7
	chunkLogHead = 11

	chunkFull   = 1
	chunkFirst  = 2
	chunkMiddle = 3
	chunkLast   = 4
	chunkOfLog  = 4 // added to the type of a log's chunks
)

// chunk is one that verifies.
type chunk struct {
	kind    byte // chunkFull to chunkLast
	payload []byte
	end     int64 // offset behind it
}

// chunkAt reads the chunk at an offset; false if there is none that verifies, or it is of another
// log. The caller has skipped what is too short at the end of a block.
func chunkAt(data []byte, at int64, a appended) (c chunk, ok bool) {
	block := data[:min(int64(len(data)), (at/chunkBlock+1)*chunkBlock)]
	head := int64(chunkHead)
	if a.kind == kindLog {
		head = chunkLogHead
	}
	if at+head > int64(len(block)) {
		return c, false
	}
	b := block[at:]
	c.kind = b[6]
	if a.kind == kindLog {
		if c.kind <= chunkOfLog || binary.LittleEndian.Uint32(b[7:]) != uint32(a.number) {
			return c, false
		}
		c.kind -= chunkOfLog
	}
	c.end = at + head + int64(binary.LittleEndian.Uint16(b[4:]))
	if c.kind < chunkFull || c.kind > chunkLast || c.end > int64(len(block)) {
		return c, false
	}
	sum := crc32.Checksum(b[6:c.end-at], castagnoli)
	if binary.LittleEndian.Uint32(b) != (sum>>15|sum<<17)+0xa282ead8 {
		return c, false
	}
	c.payload = b[head : c.end-at]
	return c, true
}

// isTrailer tells whether a log ends there, as one that was closed does: with an empty chunk of the
// next log.
func isTrailer(data []byte, at int64, a appended) bool {
	c, ok := chunkAt(data, at, appended{a.kind, a.number + 1})
	return ok && len(c.payload) == 0
}

// skipPadding returns the offset of the next chunk: behind what is too short for a header.
func skipPadding(at int64, a appended) int64 {
	head := int64(chunkHead)
	if a.kind == kindLog {
		head = chunkLogHead
	}
	if left := chunkBlock - at%chunkBlock; left < head {
		return at + left
	}
	return at
}

// firstBad is the offset of the first chunk that does not verify.
func firstBad(data []byte, a appended) int64 {
	for at := int64(0); ; {
		at = skipPadding(at, a)
		c, ok := chunkAt(data, at, a)
		if !ok {
			return at
		}
		at = c.end
	}
}

// readFile reads the beginning of a file, at most limit bytes; errs.NotFound if there is none.
func readFile(fs vfs.FS, name string, limit uint64) ([]byte, error) {
	f, err := fs.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errs.New(errs.NotFound, opOpen, name, err)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	data := make([]byte, min(uint64(info.Size()), limit))
	n, err := io.ReadFull(f, data)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return data[:n], err
}
