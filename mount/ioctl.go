package mount

import (
	"encoding/binary"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/sluice-storage/sluice/meta"
	"golang.org/x/sys/unix"
)

// What chattr(1) and its like ask for.
const (
	fsGetFlags  = 0x80086601 // FS_IOC_GETFLAGS
	fsSetFlags  = 0x40086602 // FS_IOC_SETFLAGS
	fsGetXattr  = 0x801c581f // FS_IOC_FSGETXATTR
	fsSetXattr  = 0x401c5820 // FS_IOC_FSSETXATTR
	flagsBytes  = 4
	fsxattrSize = 28
)

// Ioctl answers what lsattr(1) asks: no file has any of the flags. They cannot be set, except to
// what they are, which is what programs do that copy them. Everything else is not known here.
func (b *bridge) Ioctl(cancel <-chan struct{}, in *fuse.IoctlIn, inbuf []byte, out *fuse.IoctlOut,
	outbuf []byte) fuse.Status {
	switch in.Cmd {
	case fsGetFlags, fsGetXattr:
		ctx := b.request(cancel, &in.InHeader)
		defer ctx.end()
		a, err := b.attrOf(ctx, b.ino(in.NodeId))
		if err != nil {
			return b.nodeStatus("ioctl", in.Pid, err)
		}
		if a.Type != meta.Regular && a.Type != meta.Directory {
			return fuse.Status(unix.ENOTTY)
		}
		clear(outbuf)
		return fuse.OK
	case fsSetFlags:
		if len(inbuf) < flagsBytes {
			return fuse.EINVAL
		}
		if binary.NativeEndian.Uint32(inbuf) != 0 {
			return fuse.Status(unix.EOPNOTSUPP)
		}
		return fuse.OK
	case fsSetXattr:
		if len(inbuf) < fsxattrSize {
			return fuse.EINVAL
		}
		for _, v := range inbuf[:fsxattrSize] {
			if v != 0 {
				return fuse.Status(unix.EOPNOTSUPP)
			}
		}
		return fuse.OK
	}
	return fuse.Status(unix.ENOTTY)
}
