package mount

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/meta"
	"golang.org/x/sys/unix"
)

// fill writes to a new file until there is no room, and hears so from its write, its fsync or its
// close.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	p := pattern(64<<10, 3)
	for err == nil {
		if _, err = f.Write(p); err == nil {
			err = f.Sync()
		}
	}
	if err := errors.Join(err, f.Close()); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("filling ended with %v", err)
	}
}

// TestReservedRangesAreWrittenWhenTheDiskIsFull: by write, mapping, O_DIRECT and O_APPEND, before
// the end of the file and behind it, and again after they were zeroed. What was not reserved is
// refused, and reserving what does not fit changes nothing.
func TestReservedRangesAreWrittenWhenTheDiskIsFull(t *testing.T) {
	c := startCluster(&cluster{t: t, storeBytes: 8 << 20}, 4, false)
	dir := c.mount(Options{}).Dir()
	name := filepath.Join(dir, "f")
	f := open(t, name, os.O_CREATE|os.O_RDWR)
	const size = 4 << 20
	must(t, unix.Fallocate(int(f.Fd()), 0, 0, size))
	must(t, unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, size, 2<<20))
	wantSpace(t, name, 6<<20, 6<<20)
	fill(t, filepath.Join(dir, "full"))
	for _, mode := range []uint32{0, unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_ZERO_RANGE} {
		want(t, unix.Fallocate(int(f.Fd()), mode, 1000, 16<<20), unix.ENOSPC)
	}
	wantSpace(t, name, 6<<20, 6<<20)
	equalFile(t, name, make([]byte, size))

	data := pattern(6<<20, 9)
	write := func(g *os.File, p []byte, off int64) {
		t.Helper()
		_, err := g.WriteAt(p, off)
		must(t, err)
		must(t, g.Sync())
	}
	write(f, data[:1<<20], 0)
	for off := int64(1 << 20); off < 2<<20; off += 128 << 10 {
		write(f, data[off:off+7000], off)
		write(f, data[off+7000:off+128<<10], off+7000)
	}
	d := open(t, name, os.O_RDWR|unix.O_DIRECT)
	write(d, data[2<<20:3<<20], 2<<20)
	m, err := unix.Mmap(int(f.Fd()), 3<<20, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	copy(m, data[3<<20:4<<20])
	must(t, unix.Msync(m, unix.MS_SYNC))
	must(t, unix.Munmap(m))
	a := open(t, name, os.O_WRONLY|os.O_APPEND)
	_, err = a.Write(data[4<<20 : 5<<20])
	must(t, err)
	must(t, a.Close())
	write(f, data[5<<20:], 5<<20)
	must(t, f.Close())
	equalFile(t, name, data)
	wantSpace(t, name, 6<<20, 6<<20)

	f = open(t, name, os.O_RDWR)
	must(t, unix.Fallocate(int(f.Fd()), modeZeroKeep, 5, 3<<20))
	clear(data[5 : 5+3<<20])
	equalFile(t, name, data)
	write(f, pattern(3<<20, 1), 5)
	copy(data[5:], pattern(3<<20, 1))
	equalFile(t, name, data)
	// Room that was given back is taken by others.
	must(t, unix.Fallocate(int(f.Fd()), modePunch, 0, 4<<20))
	must(t, os.WriteFile(filepath.Join(dir, "other"), pattern(1<<20, 5), 0o644))
}

// TestReservedRangesAndQuotas: a quota counts what is reserved as if it were written.
func TestReservedRangesAndQuotas(t *testing.T) {
	const limit = 5 << 20
	c := newCluster(t, 2)
	dir := filepath.Join(c.mount(Options{}).Dir(), "d")
	must(t, os.Mkdir(dir, 0o777))
	a, err := c.meta.Lookup(t.Context(), meta.Caller{}, meta.RootIno, "d")
	must(t, err)
	q, err := c.meta.SetQuota(t.Context(), meta.Caller{}, a.Ino, meta.Usage{Bytes: limit})
	must(t, err)
	for end := time.Now().Add(time.Minute); q.Counting && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
		q, err = c.meta.GetQuota(t.Context(), meta.Caller{}, a.Ino)
		must(t, err)
	}
	f := open(t, filepath.Join(dir, "f"), os.O_CREATE|os.O_RDWR)
	want(t, unix.Fallocate(int(f.Fd()), 0, 0, limit+1), unix.EDQUOT)
	must(t, unix.Fallocate(int(f.Fd()), 0, 0, limit))
	g := open(t, filepath.Join(dir, "g"), os.O_CREATE|os.O_RDWR)
	_, err = g.Write([]byte("x"))
	want(t, err, unix.EDQUOT)
	_, err = f.WriteAt(pattern(limit, 1), 0)
	must(t, err)
	must(t, f.Sync())
	_, err = f.WriteAt([]byte("x"), limit)
	want(t, err, unix.EDQUOT)
	must(t, f.Close())
	equalFile(t, filepath.Join(dir, "f"), pattern(limit, 1))
}

// TestCopiesKeepHoles: cp without options keeps holes of every kind, made by this mount or another,
// and du shows what there is, small holes included.
func TestCopiesKeepHoles(t *testing.T) {
	c := newCluster(t, 4)
	one, two := c.mount(Options{}).Dir(), c.mount(Options{}).Dir()
	files := sparseFiles(t, one)
	f := open(t, filepath.Join(one, "small holes"), os.O_CREATE|os.O_RDWR)
	for i := range int64(64) { // pages of the store in memory are 16 KiB
		_, err := f.WriteAt(pattern(16<<10, 1), i*32<<10)
		must(t, err)
	}
	must(t, f.Close())
	files["small holes"] = [2]int64{1 << 20, 1 << 20}
	for _, dir := range []string{one, two} {
		for name, bounds := range files {
			if name == "empty" { // of 1 TiB: the machine's own file system may not take it
				continue
			}
			from, to := filepath.Join(dir, name), filepath.Join(dir, name+" copy")
			wantSpace(t, from, bounds[0], bounds[1])
			if out, err := exec.Command("cp", from, to).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			wantSpace(t, to, bounds[0], bounds[1])
			if out, err := exec.Command("cmp", from, to).CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", name, err, out)
			}
			must(t, os.Remove(to))
		}
	}
}

// TestToolsThatReserve: what people use.
func TestToolsThatReserve(t *testing.T) {
	dir := newMount(t)
	name := filepath.Join(dir, "f")
	run := func(args ...string) {
		t.Helper()
		if _, err := exec.LookPath(args[0]); err != nil {
			t.Logf("there is no %s here", args[0])
			return
		}
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Errorf("%v: %v: %s", args, err, out)
		}
	}
	run("fallocate", "-l", "8M", name)
	wantSpace(t, name, 8<<20, 8<<20)
	run("fallocate", "-x", "-l", "9M", name) // posix_fallocate
	wantSpace(t, name, 9<<20, 9<<20)
	run("fallocate", "-n", "-o", "9M", "-l", "1M", name)
	wantSpace(t, name, 10<<20, 10<<20)
	run("fallocate", "-z", "-o", "1M", "-l", "1M", name)
	run("fallocate", "-p", "-o", "2M", "-l", "1M", name)
	wantSpace(t, name, 9<<20, 9<<20)
	run("truncate", "-s", "1M", name)
	wantSpace(t, name, 1<<20, 1<<20)
	must(t, os.WriteFile(filepath.Join(dir, "empty"), nil, 0o644))
	run("fallocate", "-n", "-l", "2M", filepath.Join(dir, "empty"))
	wantSpace(t, filepath.Join(dir, "empty"), 2<<20, 2<<20)
	run("truncate", "-s", "0", filepath.Join(dir, "empty"))
	run("fallocate", "-n", "-l", "1M", filepath.Join(dir, "empty")) // else it would count twice
	wantSpace(t, filepath.Join(dir, "empty"), 1<<20, 1<<20)
	info, err := os.Stat(name)
	must(t, err)
	if info.Size() != 1<<20 {
		t.Errorf("%d bytes", info.Size())
	}
	img := filepath.Join(dir, "disk.img")
	if _, err := exec.LookPath("qemu-img"); err == nil {
		run("qemu-img", "create", "-f", "raw", "-o", "preallocation=falloc", img, "16M")
		wantSpace(t, img, 16<<20, 16<<20)
		run("qemu-img", "resize", "-f", "raw", "--preallocation=falloc", img, "24M")
		wantSpace(t, img, 24<<20, 24<<20)
	}
}

// TestCopyFileRange copies inside the mount, at random, against the same in memory.
func TestCopyFileRange(t *testing.T) {
	dir := newMount(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	from, to := pattern(5<<20, 7), pattern(3<<20, 11)
	must(t, os.WriteFile(a, from, 0o644))
	must(t, os.WriteFile(b, to, 0o644))
	f, g := open(t, a, os.O_RDWR), open(t, b, os.O_RDWR)
	must(t, unix.Fallocate(int(f.Fd()), modePunch, 1<<20, 1<<20))
	clear(from[1<<20 : 2<<20])
	for range 30 {
		src, dst, n := rnd.Int64N(5<<20), rnd.Int64N(6<<20), 1+rnd.IntN(2<<20)
		in, out := src, dst
		got, err := unix.CopyFileRange(int(f.Fd()), &in, int(g.Fd()), &out, n, 0)
		want := min(int64(n), int64(len(from))-src)
		if err != nil || int64(got) != want || in != src+want || out != dst+want {
			t.Fatalf("copied %d of %d, %v", got, want, err)
		}
		if end := dst + want; end > int64(len(to)) {
			to = append(to, make([]byte, end-int64(len(to)))...)
		}
		copy(to[dst:], from[src:src+want])
		if got, err := os.ReadFile(b); err != nil || !bytes.Equal(got, to) {
			t.Fatalf("other bytes after %d from %d to %d, %v", n, src, dst, err)
		}
	}
	whole := open(t, filepath.Join(dir, "whole"), os.O_CREATE|os.O_RDWR)
	for n := int64(0); n < int64(len(from)); { // the kernel by itself would copy zeroes
		got, err := unix.CopyFileRange(int(f.Fd()), nil, int(whole.Fd()), nil, len(from), 0)
		must(t, err)
		n += int64(got)
	}
	wantSpace(t, whole.Name(), 4<<20, 4<<20)
	equalFile(t, whole.Name(), from)
	in, out := int64(0), int64(1000)
	_, err := unix.CopyFileRange(int(f.Fd()), &in, int(f.Fd()), &out, 5000, 0)
	want(t, err, unix.EINVAL)
	out = 5 << 20
	n, err := unix.CopyFileRange(int(f.Fd()), &in, int(f.Fd()), &out, 5000, 0)
	if err != nil || n != 5000 {
		t.Errorf("inside of one file: %d, %v", n, err)
	}
	equalFile(t, a, append(from, from[:5000]...))
}
