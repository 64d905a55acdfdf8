package mount

import (
	"context"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/sluice-storage/sluice/meta"
	"golang.org/x/sys/unix"
)

// TestOwnersOfOneName: the kernel names the owner of an OFD lock by where its open file lies in
// memory, and tells of its end a while after. The next open file may lie there and have locked the
// file by then: its lock stays, and is released with it.
func TestOwnersOfOneName(t *testing.T) {
	for name, flags := range map[string]uint32{"OFD": 0, "flock": fuse.FUSE_LK_FLOCK} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1)
			b := c.mount(Options{}).bridge
			cancel := make(chan struct{})
			root := fuse.InHeader{NodeId: fuse.FUSE_ROOT_ID}
			var first fuse.CreateOut
			ok(t, b.Create(cancel, &fuse.CreateIn{InHeader: root, Flags: unix.O_RDWR, Mode: 0o644}, "f",
				&first))
			h := fuse.InHeader{NodeId: first.NodeId}
			var second fuse.OpenOut
			ok(t, b.Open(cancel, &fuse.OpenIn{InHeader: h, Flags: unix.O_RDWR}, &second))

			const owner = 77
			lock := func(fh uint64) {
				ok(t, b.SetLk(cancel, &fuse.LkIn{InHeader: h, Fh: fh, Owner: owner, LkFlags: flags,
					Lk: fuse.FileLock{Typ: syscall.F_WRLCK, End: 9}}))
			}
			held := func() bool {
				l := meta.Lock{Ino: meta.Ino(b.ino(h.NodeId)), Kind: meta.LockRange, Owner: 1,
					Type: meta.LockExclusive, End: 9}
				if flags != 0 {
					l.Kind, l.End = meta.LockFlock, meta.LockEndMax
				}
				_, found, err := b.fs.TestLock(context.Background(), l)
				must(t, err)
				return found
			}
			closed := func(fh uint64) {
				b.Release(cancel, &fuse.ReleaseIn{InHeader: h, Fh: fh, LockOwner: owner,
					ReleaseFlags: fuse.FUSE_RELEASE_FLOCK_UNLOCK})
			}
			lock(first.Fh)
			lock(second.Fh)
			if closed(first.Fh); !held() {
				t.Error("a lock ended with an open file that was another one")
			}
			if closed(second.Fh); held() {
				t.Error("nobody releases the lock")
			}
			if n := len(b.lockers.with); n > 0 {
				t.Errorf("%d owners are remembered", n)
			}
		})
	}
}
