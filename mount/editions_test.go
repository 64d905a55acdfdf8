package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/meta"
	"golang.org/x/sys/unix"
)

// TestNodes: a node id says which inode and which edition it is, however large the number.
func TestNodes(t *testing.T) {
	for _, ino := range []meta.Ino{1, 2, 1<<inodeBits - 1, 1 << inodeBits, 1<<62 - 1} {
		for _, number := range []uint64{0, 1, 77, outdatedNumber - 1, outdatedNumber} {
			want := number
			if !hasEditions(ino) {
				want = 0
			}
			if i, n := splitNode(nodeOf(ino, number)); i != ino || n != want {
				t.Errorf("%d of %d comes back as %d of %d", number, ino, n, i)
			}
		}
	}
}

// TestEditions: another one where somebody else has changed the file, or it was forgotten; the same
// while it is open, and after changes of this mount's own.
func TestEditions(t *testing.T) {
	var x editions
	a := meta.Attr{Ino: 7, DataVersion: 3}
	first := x.of(&a, false)
	own := meta.Attr{Ino: 7, DataVersion: 4}
	if x.of(&own, true) != first {
		t.Error("it is not waited for who has changed it")
	}
	x.changed(&own)
	if x.of(&own, false) != first || x.stale(first, &own) {
		t.Error("a change of its own makes another file of it")
	}
	cut := meta.Attr{Ino: 7, DataVersion: 5, TruncSeq: 1}
	x.cut(&cut)
	if x.of(&cut, false) != first || x.stale(first, &cut) {
		t.Error("a truncation of its own makes another file of it")
	}
	if x.of(&own, false) != outdatedNumber || !x.stale(outdatedNumber, &cut) {
		t.Error("attributes from before a change are told as if they were those of now")
	}
	x.opened(first, &cut, true)
	others := meta.Attr{Ino: 7, DataVersion: 9, TruncSeq: 1}
	for i := range meta.Ino(3 * editionsMax) { // it is not forgotten meanwhile
		x.of(&meta.Attr{Ino: 100 + i}, false)
	}
	if x.of(&others, false) != first || x.stale(first, &others) {
		t.Error("an open file was taken from its program")
	}
	x.closed(7)
	if !x.stale(first, &others) {
		t.Error("a change by others is not noticed")
	}
	second := x.of(&others, false)
	if second == first || x.of(&others, false) != second || !x.stale(first, &others) ||
		x.stale(second, &others) {
		t.Error("a change by others is not told")
	}
	if x.begins(outdatedNumber, &others) || !x.begins(first, &others) || x.stale(first, &others) {
		t.Error("an edition that begins anew is not the one to have")
	}
}

// TestEditionsOfTheNext: a process that goes on keeps what is open, knows what was not written
// since, and takes nothing else for known.
func TestEditionsOfTheNext(t *testing.T) {
	var x, y editions
	read, written := meta.Attr{Ino: 7, DataVersion: 2, TruncSeq: 3}, meta.Attr{Ino: 8, DataVersion: 5}
	open := meta.Attr{Ino: 9, DataVersion: 1}
	first, second, third := x.of(&read, false), x.of(&written, false), x.of(&open, false)
	written.DataVersion++
	x.changed(&written)
	y.opened(third, &open, false)
	if y.stale(first, &read) || !y.stale(second, &written) {
		t.Error("it does not know which of the kernel's files are as they are")
	}
	open.DataVersion += 2
	if y.stale(third, &open) || y.of(&open, false) != third {
		t.Error("an open file was taken from its program")
	}
	y.closed(9)
	if !y.stale(third, &open) || y.of(&open, false) == third {
		t.Error("what was open is believed, and nobody knows who has changed it")
	}
}

// node is what the kernel calls a file.
func node(t *testing.T, path string) string {
	t.Helper()
	h := handle(t, path)
	return fmt.Sprintf("%x", h.Bytes())
}

// TestOwnWritesKeepTheInode: what this mount writes, cuts and closes leaves the kernel its inode,
// with its pages; what another one does gives it another.
func TestOwnWritesKeepTheInode(t *testing.T) {
	c := newCluster(t, 2)
	p := filepath.Join(c.mount(Options{Cache: CacheWriteback}).Dir(), "f")
	other := filepath.Join(c.mount(Options{Cache: CacheWriteback}).Dir(), "f")
	must(t, os.WriteFile(p, pattern(100<<10, 1), 0o644))
	must(t, os.WriteFile(p+".small", pattern(100, 1), 0o644))
	was, small := node(t, p), node(t, p+".small")
	for i := range 20 {
		f := open(t, p, os.O_RDWR)
		_, err := f.WriteAt(pattern(50<<10, byte(i)), int64(i)*1000)
		must(t, err)
		must(t, f.Close())
		must(t, os.WriteFile(p+".small", pattern(100+i, 1), 0o644))
		if i%5 == 4 {
			must(t, os.Truncate(p, int64(100+i)<<10))
		}
		if now := node(t, p); now != was {
			t.Fatalf("round %d: the kernel has another inode, %s, not %s", i, now, was)
		}
		if now := node(t, p+".small"); now != small {
			t.Fatalf("round %d: the kernel has another inode of a small file, %s, not %s", i, now, small)
		}
	}
	must(t, os.WriteFile(other, []byte("by another"), 0o644))
	equalFile(t, p, []byte("by another"))
	if node(t, p) == was {
		t.Error("the kernel has the same inode of what another mount has written")
	}
}

// TestInodeInUse: an inode that a program has found, and not opened yet, stays good while the
// kernel gets another one of the same file.
func TestInodeInUse(t *testing.T) {
	c := newCluster(t, 2)
	p := filepath.Join(c.mount(Options{Cache: CacheWriteback}).Dir(), "f")
	other := filepath.Join(c.mount(Options{Cache: CacheWriteback}).Dir(), "f")
	for i, size := range []int{100, 5000, 100 << 10, 300 << 10, 200} {
		must(t, os.WriteFile(p, []byte("from here"), 0o644))
		fd, err := unix.Open(p, unix.O_PATH|unix.O_CLOEXEC, 0)
		must(t, err)
		want := pattern(size, byte(i))
		must(t, os.WriteFile(other, want, 0o644))
		equalFile(t, p, want) // by its name, which leads to another inode now
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			t.Errorf("the inode that was found is gone: %v", err)
		}
		equalFile(t, fmt.Sprint("/proc/self/fd/", fd), want)
		must(t, os.WriteFile(fmt.Sprint("/proc/self/fd/", fd), []byte("anew"), 0))
		equalFile(t, p, []byte("anew"))
		equalFile(t, other, []byte("anew"))
		must(t, unix.Close(fd))
	}
}

// TestHandlesWhereTheKernelWritesBack: a handle stands for its file when others have changed it,
// and when the kernel has forgotten it. It forgets a file that was just closed a moment later, and
// until then its handle is ESTALE (docs/posix.md).
func TestHandlesWhereTheKernelWritesBack(t *testing.T) {
	c := newCluster(t, 1)
	dir := c.mount(Options{Cache: CacheWriteback}).Dir()
	other := c.mount(Options{Cache: CacheWriteback}).Dir()
	p := filepath.Join(dir, "f")
	must(t, os.WriteFile(p, []byte("first"), 0o644))
	h := handle(t, p)
	for i := range 5 {
		text := pattern(50+i*9000, byte(i))
		must(t, os.WriteFile(filepath.Join(other, "f"), text, 0o644))
		if i > 0 {
			equalFile(t, p, text)
		}
		dropCaches(t)
		f, err := byHandle(dir, h, unix.O_RDONLY)
		for end := time.Now().Add(time.Minute); errors.Is(err, unix.ESTALE) && time.Now().Before(end); {
			time.Sleep(2 * time.Millisecond)
			f, err = byHandle(dir, h, unix.O_RDONLY)
		}
		must(t, err)
		equalFile(t, fmt.Sprint("/proc/self/fd/", f.Fd()), text)
		must(t, f.Close())
	}
}

// TestRewrittenWhileOpened: of a file that one program rewrites past the kernel's pages, and others
// open, read and close, nothing fails. (xfstests generic/451.)
func TestRewrittenWhileOpened(t *testing.T) {
	eachMode(t, func(t *testing.T, mode CacheMode) {
		name := filepath.Join(newCluster(t, 2).mount(Options{Cache: mode}).Dir(), "f")
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				p := make([]byte, rewritten)
				for {
					select {
					case <-stop:
						return
					default:
					}
					withFile(t, name, os.O_RDWR|os.O_CREATE, func(f *os.File) error {
						_, err := unix.Pread(int(f.Fd()), p, 0)
						return err
					})
				}
			})
		}
		rewrite(t, name)
		close(stop)
		wg.Wait()
	})
}

const rewritten = 256 << 10

// withFile opens a file, does something to it, and closes it.
func withFile(t *testing.T, name string, flags int, do func(f *os.File) error) {
	f, err := os.OpenFile(name, flags, 0o600)
	if err != nil {
		t.Error(err)
		return
	}
	for _, err := range []error{do(f), f.Close()} {
		if err != nil {
			t.Error("what is open fails:", err)
		}
	}
}

// rewrite writes a file anew by O_DIRECT, again and again, and reads it.
func rewrite(t *testing.T, name string) {
	p, err := unix.Mmap(-1, 0, rewritten, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_ANON|unix.MAP_PRIVATE)
	must(t, err)
	defer func() { _ = unix.Munmap(p) }()
	for range 200 {
		withFile(t, name, os.O_RDWR|os.O_CREATE|unix.O_DIRECT, func(f *os.File) error {
			_, err := f.WriteAt(p, 0)
			return err
		})
		withFile(t, name, os.O_RDONLY|unix.O_DIRECT, func(f *os.File) error {
			_, err := f.ReadAt(p, 0)
			return err
		})
		if t.Failed() {
			return
		}
	}
}

// TestThreadsOfTheNext: a thread that was told to look again by a process that has died since is
// not told so once more.
func TestThreadsOfTheNext(t *testing.T) {
	_, table := newTestKept(t)
	var x, y, z again
	x.goOn(table)
	for pid := range uint32(5) {
		x.note(pid + 1)
	}
	x.done(3, nil)
	y.goOn(table)
	for pid := range uint32(7) {
		if want := pid >= 1 && pid <= 5 && pid != 3; y.repeats(pid) != want {
			t.Errorf("thread %d: %v", pid, !want)
		}
	}
	for pid := range uint32(7) {
		y.done(pid, nil)
	}
	y.stop()
	x.stop()
	z.goOn(table)
	if z.repeats(1) {
		t.Error("a thread is noted for ever")
	}
	z.stop()
}
