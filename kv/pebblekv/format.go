package pebblekv

import (
	"encoding/binary"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
)

// Keys and values in pebble; all numbers are big-endian.
//
//	key                       value
//	'm' "format"              format u32
//	'm' "last"                version u64 of the last commit
//	'm' "ceiling"             version u64: no number above it was ever given out
//	'r' slot u32              version u64 | answer u64 | request id 16 B   one of 65536 in a ring
//	'u' the user's key        version u64 | the user's value
//
// A commit is one batch: its effects, "last", and the ring's record if it has a request id. So it
// is on disk whole or not at all, and repeats are recognised exactly if the first one is there.
const (
	prefixMeta   = 'm'
	prefixReplay = 'r'
	prefixUser   = 'u'

	keyFormat  = "mformat"
	keyLast    = "mlast"
	keyCeiling = "mceiling"

	// formatVersion is raised when the store would be misread by an older build, or an older store
	// by this one. Format 2 added the answer to the ring's records.
	formatVersion = 2

	versionBytes = 8
	answerBytes  = 8
	replayBytes  = versionBytes + answerBytes + kv.ReqIDBytes
	replayKey    = 1 + 4
)

// userKey returns a user's key as pebble has it.
func userKey(key []byte) []byte {
	return append(append(make([]byte, 0, 1+len(key)), prefixUser), key...)
}

// userBounds returns [start, end) as pebble's bounds; an empty end means all that follow.
func userBounds(start, end []byte) (lower, upper []byte) {
	if len(end) == 0 {
		return userKey(start), []byte{prefixUser + 1}
	}
	return userKey(start), userKey(end)
}

// parseValue splits a stored value. The user's part aliases b.
func parseValue(b []byte) (kv.Version, []byte, error) {
	if len(b) < versionBytes {
		return 0, nil, corrupt("value of %d bytes, at least %d", len(b), versionBytes)
	}
	v := kv.Version(binary.BigEndian.Uint64(b))
	if v == 0 {
		return 0, nil, corrupt("value with version 0")
	}
	return v, b[versionBytes:], nil
}

// parseVersion reads the value of "last" and "ceiling".
func parseVersion(b []byte) (kv.Version, error) {
	if len(b) != versionBytes {
		return 0, corrupt("version of %d bytes, want %d", len(b), versionBytes)
	}
	return kv.Version(binary.BigEndian.Uint64(b)), nil
}

// parseFormat reads the value of "format".
func parseFormat(b []byte) (uint32, error) {
	if len(b) != 4 {
		return 0, corrupt("format of %d bytes, want 4", len(b))
	}
	return binary.BigEndian.Uint32(b), nil
}

// parseReplay reads a record of the ring of requests, which must be the one of slot.
func parseReplay(slot int, key, b []byte) (id kv.ReqID, was kv.Result, err error) {
	if len(key) != replayKey || int64(binary.BigEndian.Uint32(key[1:])) != int64(slot) {
		return id, was, corrupt("request record at %x, want slot %d", key, slot)
	}
	if len(b) != replayBytes || slot >= kv.ReplayWindow {
		return id, was, corrupt("request record %d of %d bytes, want %d", slot, len(b), replayBytes)
	}
	was.Version = kv.Version(binary.BigEndian.Uint64(b))
	was.Answer = binary.BigEndian.Uint64(b[versionBytes:])
	copy(id[:], b[versionBytes+answerBytes:])
	return id, was, nil
}

func corrupt(format string, args ...any) error {
	return errs.Newf(errs.Corrupt, "pebblekv", "", format, args...)
}
