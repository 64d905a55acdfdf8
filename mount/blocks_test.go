package mount

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const punchMode = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE

// spaceOf is what stat(2) says of a file's space, in bytes.
func spaceOf(t testing.TB, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Stat(path, &st))
	return st.Blocks * 512
}

// wantSpace waits until a file's space is within bounds: the kernel may believe older attributes
// for a moment, and on a busy machine an I/O server may answer too late to be counted.
func wantSpace(t testing.TB, path string, least, most int64) {
	t.Helper()
	var got int64
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if got = spaceOf(t, path); got >= least && got <= most {
			return
		}
	}
	t.Errorf("%s takes %d bytes, not %d to %d", filepath.Base(path), got, least, most)
}

// sparseFiles makes files with holes, in every way that there is, and returns the least and most
// space that they may take.
func sparseFiles(t *testing.T, dir string) map[string][2]int64 {
	const unit = 64 << 10 // of an I/O server's space
	make := func(name string, do func(f *os.File)) {
		t.Helper()
		f := open(t, filepath.Join(dir, name), os.O_CREATE|os.O_RDWR)
		do(f)
		must(t, f.Close())
	}
	write := func(f *os.File, n int, off int64) {
		t.Helper()
		_, err := f.WriteAt(pattern(n, 1), off)
		must(t, err)
	}
	make("extended", func(f *os.File) {
		must(t, f.Truncate(100<<20))
		write(f, 4096, 50<<20)
		wantSpace(t, f.Name(), 4096, unit) // while it is open, too
	})
	make("seek", func(f *os.File) {
		write(f, 4096, 40<<20)
		wantSpace(t, f.Name(), 4096, unit)
	})
	make("punched", func(f *os.File) {
		write(f, 8<<20, 0)
		must(t, unix.Fallocate(int(f.Fd()), punchMode, 1<<20, 4<<20))
		wantSpace(t, f.Name(), 4<<20, 4<<20)
		must(t, unix.Fallocate(int(f.Fd()), punchMode, 6<<20, 1<<20))
		wantSpace(t, f.Name(), 3<<20, 3<<20)
		write(f, 1<<20, 2<<20)
	})
	make("empty", func(f *os.File) { must(t, f.Truncate(1<<40)) })
	make("cut", func(f *os.File) {
		must(t, f.Truncate(1<<30))
		write(f, 1<<20, 512<<20)
		must(t, f.Truncate(600<<20))
	})
	make("filled", func(f *os.File) {
		must(t, f.Truncate(3<<20))
		write(f, 3<<20, 0)
	})
	make("again", func(f *os.File) {
		must(t, f.Truncate(100<<20))
		must(t, f.Truncate(0))
		write(f, 1<<20, 0)
	})
	return map[string][2]int64{"extended": {4096, unit}, "seek": {4096, unit},
		"punched": {4 << 20, 4 << 20}, "empty": {0, 0}, "cut": {1 << 20, 1 << 20},
		"filled": {3 << 20, 3 << 20}, "again": {1 << 20, 1 << 20}}
}

// TestBlocksShowHoles: stat(2) tells the space that a file takes, on every mount alike.
func TestBlocksShowHoles(t *testing.T) {
	c := newCluster(t, 4)
	first := c.mount(Options{}).Dir()
	files := sparseFiles(t, first)
	for _, dir := range []string{first, c.mount(Options{}).Dir(), c.mount(Options{}).Dir()} {
		for name, bounds := range files {
			wantSpace(t, filepath.Join(dir, name), bounds[0], bounds[1])
		}
		out, err := exec.Command("du", "-s", "-B1", filepath.Join(dir, "extended")).Output()
		must(t, err)
		n, err := strconv.ParseInt(strings.Fields(string(out))[0], 10, 64)
		if err != nil || n < 4096 || n > 64<<10 {
			t.Errorf("du says %s, %v", out, err)
		}
	}
}

// TestHolesSurviveCopies: tools that look for holes find them, and no others.
func TestHolesSurviveCopies(t *testing.T) {
	dir := newMount(t)
	from := filepath.Join(dir, "from")
	data := make([]byte, 20<<20)
	copy(data[7<<20:], pattern(5000, 3))
	copy(data[15<<20:], pattern(1<<20, 4))
	must(t, os.WriteFile(from, data, 0o644))
	wantSpace(t, from, 20<<20, 20<<20)
	sh := func(script string) {
		t.Helper()
		cmd := exec.Command("sh", "-ec", "cd '"+dir+"'; "+script)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
	}
	sh("cp --sparse=always from always; cp --sparse=auto always auto")
	sh("tar -Scf all.tar always; mkdir out; tar -Sxf all.tar -C out")
	for _, name := range []string{"always", "auto", "out/always"} {
		p := filepath.Join(dir, name)
		wantSpace(t, p, 1<<20+5000, 1<<20+256<<10)
		if got, err := os.ReadFile(p); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s has other bytes, %v", name, err)
		}
	}
	wantSpace(t, filepath.Join(dir, "all.tar"), 1<<20, 2<<20)
}

// TestDenseFilesAreNotAsked: files without holes cost nothing more, however they were written.
func TestDenseFilesAreNotAsked(t *testing.T) {
	c := newCluster(t, 4)
	a, b := c.mount(Options{}).Dir(), c.mount(Options{}).Dir()
	sizes := map[string]int64{"empty": 0, "byte": 1, "some": 3<<20 + 5, "parts": 4 << 20,
		"appended": 2 * 40000}
	for _, name := range []string{"empty", "byte", "some"} {
		must(t, os.WriteFile(filepath.Join(a, name), pattern(int(sizes[name]), 1), 0o644))
	}
	f := open(t, filepath.Join(a, "parts"), os.O_CREATE|os.O_RDWR)
	for _, i := range []int64{3, 1, 0, 2} {
		_, err := f.WriteAt(pattern(1<<20, 1), i<<20)
		must(t, err)
	}
	must(t, f.Close())
	for _, dir := range []string{a, b} {
		f := open(t, filepath.Join(dir, "appended"), os.O_CREATE|os.O_WRONLY|os.O_APPEND)
		_, err := f.Write(pattern(40000, 1))
		must(t, err)
		must(t, f.Close())
	}
	for _, dir := range []string{a, b} {
		for name, size := range sizes {
			size = (size + 4095) / 4096 * 4096
			wantSpace(t, filepath.Join(dir, name), size, size)
		}
	}
	if n := c.spaces.asked.Load(); n != 0 {
		t.Errorf("I/O servers were asked %d times", n)
	}
}

// TestSpaceIsAskedForOnce, and not while a server keeps silent: then it is the length.
func TestSpaceIsAskedForOnce(t *testing.T) {
	c := newCluster(t, 4)
	dir := c.mount(Options{AttrTimeout: -1, EntryTimeout: -1}).Dir()
	for _, name := range []string{"f", "g"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o644))
		must(t, os.Truncate(filepath.Join(dir, name), 1<<30))
	}
	f, g := filepath.Join(dir, "f"), filepath.Join(dir, "g")
	wantSpace(t, f, 1, 64<<10)
	asked := c.spaces.asked.Load()
	for range 20 {
		wantSpace(t, f, 1, 64<<10)
	}
	if n := c.spaces.asked.Load() - asked; n > 1 { // one more if that took half a minute
		t.Errorf("I/O servers were asked %d times for the same data", n)
	}
	c.spaces.stuck.Store(true)
	asked = c.spaces.asked.Load()
	for range 20 {
		if got := spaceOf(t, g); got != 1<<30 {
			t.Errorf("takes %d bytes, says nobody", got)
		}
	}
	if n := c.spaces.asked.Load() - asked; n > 5 {
		t.Errorf("silent I/O servers were asked %d times", n)
	}
	c.spaces.stuck.Store(false)
	wantSpace(t, g, 1, 64<<10)
}
