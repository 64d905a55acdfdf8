package store_test

import "github.com/sluice-storage/sluice/meta"

// wrote closes a handle of a file that was written to.
func wrote(handle uint64, size int64, truncSeq uint64, mtime int64) meta.Closing {
	return meta.Closing{Handle: handle, Dirty: true, Change: told(0, size, truncSeq, mtime)}
}

// told is a plain change.
func told(ino meta.Ino, size int64, truncSeq uint64, mtime int64) meta.Change {
	return meta.Change{Ino: ino, Size: size, TruncSeq: truncSeq, Mtime: meta.UnixTime(0, mtime)}
}
