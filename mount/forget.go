package mount

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
	"golang.org/x/sys/unix"
)

// How the kernel forgets what it was told under a lease that goes back.
//
// Attributes are dropped by a message that blocks for nobody. A name is expired by one that waits
// for the directory's lock, which a program holds that changes something in it, and that may wait
// for the very client that wants the lease. So nobody waits for these messages longer than the
// kernel believes in the names anyway: after that they are expired without a message. Where there
// are too many of them, or the kernel is older than Linux 6.2, there are no messages and that is
// all.

// answerGrace is how long an answer may take from the moment when it was made to the kernel: one
// that comes later would have the kernel believe again what it has just forgotten.
const answerGrace = 20 * time.Millisecond

// recalled is client.FS.OnRecall.
func (b *bridge) recalled(ino meta.Ino) (forget func(context.Context)) {
	b.recalls.note(ino)
	b.touched.note(ino) // pages of directories that were read before count no more
	believes, some := b.told.take(ino, time.Now())
	if !some {
		return nil
	}
	return func(ctx context.Context) { b.forget(ctx, ino, &believes) }
}

// forget returns when the kernel believes nothing of what it was told of an inode any more.
func (b *bridge) forget(ctx context.Context, ino meta.Ino, k *belief) {
	if !wait.Sleep(ctx, time.Until(later(k.attrs, k.names).Add(answerGrace))) {
		return
	}
	if !k.attrs.IsZero() {
		b.server.InodeNotify(b.node(ino), -1, 0) // fails where the kernel has forgotten the inode
	}
	if k.names.IsZero() {
		return
	}
	ctx, cancel := context.WithDeadline(ctx, k.names.Add(b.told.keep+answerGrace))
	defer cancel()
	if !k.many && b.notes.expires() {
		expired := make(chan struct{})
		go func() {
			defer close(expired)
			for _, name := range k.list {
				b.notes.expire(b.node(ino), name)
			}
		}()
		select {
		case <-expired:
		case <-ctx.Done():
		}
		return
	}
	<-ctx.Done()
}

// notes sends the kernel messages that go-fuse does not know.
type notes struct {
	file  *os.File        // the connection; nil: none
	conn  syscall.RawConn // writes of several goroutines do not wait for each other
	minor uint32          // of the protocol
}

// expireSince is the protocol's minor version in which names can be expired.
const expireSince = 38

// open uses a connection of this process.
func (n *notes) open(fd int, minor uint32) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return
	}
	n.file, n.minor = os.NewFile(uintptr(own), "/dev/fuse"), minor
	if n.conn, err = n.file.SyscallConn(); err != nil {
		n.minor = 0
	}
}

func (n *notes) expires() bool { return n.minor >= expireSince }

// expire has the kernel look a name up before it uses it the next time. Other than a name that is
// invalidated it stays what it is if that finds the same: the working directory of a program, or a
// place where something is mounted.
//
//	|len u32 |code u32 = 3 |0 u64 |parent u64 |name's length u32 |flags u32 = 1 |name |0|
//
// in the host's byte order.
func (n *notes) expire(parent uint64, name string) {
	const (
		header      = 16
		invalEntry  = 3
		expireOnly  = 1
		entryHeader = 16
	)
	m := make([]byte, header+entryHeader+len(name)+1)
	e := binary.NativeEndian
	e.PutUint32(m, uint32(len(m)))
	e.PutUint32(m[4:], invalEntry)
	e.PutUint64(m[header:], parent)
	e.PutUint32(m[header+8:], uint32(len(name)))
	e.PutUint32(m[header+12:], expireOnly)
	copy(m[header+entryHeader:], name)
	_ = n.conn.Control(func(fd uintptr) {
		_, _ = unix.Write(int(fd), m) // fails where the kernel does not know the name
	})
}

// close ends the use of the connection. It does not wait for messages that wait for a program.
func (n *notes) close() {
	if n.file != nil {
		go n.file.Close()
	}
}

// connections are the descriptors of FUSE connections that this process has.
func connections() map[int]bool {
	const fds = "/proc/self/fd"
	all := map[int]bool{}
	list, err := os.ReadDir(fds)
	if err != nil {
		return all
	}
	for _, e := range list {
		fd, err := strconv.Atoi(e.Name())
		target, lerr := os.Readlink(filepath.Join(fds, e.Name()))
		if err == nil && lerr == nil && target == "/dev/fuse" {
			all[fd] = true
		}
	}
	return all
}
