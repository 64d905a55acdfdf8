package vmtest

import (
	"fmt"
	"os"
)

// archive is a cpio archive in the "newc" form, the one that kernels unpack:
//
//	"070701", then 13 numbers of 8 hexadecimal digits each:
//	    inode mode uid gid links mtime size major minor rmajor rminor namesize check
//	the name with a 0 byte, 0 bytes up to a multiple of 4, the data, 0 bytes up to a multiple of 4
//
// An entry called TRAILER!!! ends it. Times and owners are 0, so that equal content makes equal
// bytes.
type archive struct {
	bytes []byte
	inode int
}

const (
	modeFolder = 0o040000
	modeFile   = 0o100000
	modeChar   = 0o020000
)

func (a *archive) folder(name string) { a.entry(name, modeFolder|0o755, 0, 0, nil) }

func (a *archive) file(name string, perm os.FileMode, data []byte) {
	a.entry(name, modeFile|int(perm.Perm()), 0, 0, data)
}

func (a *archive) char(name string, major, minor int) {
	a.entry(name, modeChar|0o600, major, minor, nil)
}

func (a *archive) entry(name string, mode, major, minor int, data []byte) {
	a.inode++
	a.bytes = fmt.Appendf(a.bytes, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		a.inode, mode, 0, 0, 1, 0, len(data), 0, 0, major, minor, len(name)+1, 0)
	a.bytes = append(a.bytes, name...)
	a.bytes = append(a.bytes, 0)
	a.pad()
	a.bytes = append(a.bytes, data...)
	a.pad()
}

func (a *archive) pad() {
	for len(a.bytes)%4 != 0 {
		a.bytes = append(a.bytes, 0)
	}
}

// end closes the archive and returns it.
func (a *archive) end() []byte {
	a.entry("TRAILER!!!", 0, 0, 0, nil)
	return a.bytes
}
