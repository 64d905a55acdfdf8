package mount

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var (
	seedFlag  = flag.Uint64("mount.seed", 0, "seed of the random operations; 0: from the clock")
	stepsFlag = flag.Int("mount.steps", 4000, "how many random operations are done")
)

// twin does everything twice: on the mount and on a local directory, which is the model.
type twin struct {
	t    *testing.T
	rng  *rand.Rand
	dirs [2]string
	log  []string
	open []pair
}

// pair is one file open in both.
type pair struct{ f [2]*os.File }

// TestRandomOperations does random operations on the mount and on a local directory and demands
// that every result is the same: error, bytes, attributes and, in the end, the whole tree.
func TestRandomOperations(t *testing.T) {
	t.Run("tcp", func(t *testing.T) { randomOperations(t, newMount(t)) })
	t.Run("shm", func(t *testing.T) {
		randomOperations(t, newClusterBy(t, 4, true).mount(Options{}).Dir())
	})
}

func randomOperations(t *testing.T, dir string) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d (run again with -mount.seed=%d)", seed, seed)
	x := &twin{t: t, rng: rand.New(rand.NewPCG(seed, 1)), dirs: [2]string{dir, t.TempDir()}}
	defer x.closeAll()
	for step := range *stepsFlag {
		x.step()
		if step%500 == 499 {
			x.compareTrees()
		}
	}
	x.compareTrees()
}

func (x *twin) closeAll() {
	for _, p := range x.open {
		p.f[0].Close()
		p.f[1].Close()
	}
	x.open = nil
}

// name draws a path of few possible ones, so that operations meet.
func (x *twin) name() string {
	depth := 1 + x.rng.IntN(3)
	parts := make([]string, depth)
	for i := range parts {
		parts[i] = string(rune('a' + x.rng.IntN(4)))
	}
	return strings.Join(parts, "/")
}

// offset draws places near borders of pages, requests and stripe units.
func (x *twin) offset() int64 {
	base := []int64{0, 4096, 128 << 10, 1 << 20, 2 << 20, 4 << 20}[x.rng.IntN(6)]
	return max(base+int64(x.rng.IntN(9000))-4500, 0)
}

func (x *twin) length() int {
	return x.rng.IntN([]int{10, 5000, 200000, 2 << 20}[x.rng.IntN(4)])
}

// both runs an operation in both places and compares what it says.
func (x *twin) both(what string, do func(i int, dir string) (string, error)) bool {
	x.t.Helper()
	var said [2]string
	var failed [2]error
	for i, dir := range x.dirs {
		said[i], failed[i] = do(i, dir)
	}
	x.log = append(x.log, fmt.Sprintf("%s -> %v", what, failed[1]))
	if reason(failed[0]) != reason(failed[1]) || said[0] != said[1] {
		tail := x.log[max(0, len(x.log)-15):]
		x.t.Fatalf("%s:\nmount: %.300s %v\nlocal: %.300s %v\nbefore:\n%s", what, said[0], failed[0],
			said[1], failed[1], strings.Join(tail, "\n"))
	}
	return failed[0] == nil
}

// reason is the errno of an error.
func reason(err error) string {
	var no unix.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &no):
		return no.Error()
	}
	return err.Error()
}

func (x *twin) step() {
	if len(x.open) > 0 && x.rng.IntN(2) == 0 {
		x.stepFile(x.rng.IntN(len(x.open)))
		return
	}
	a, b := x.name(), x.name()
	j := filepath.Join
	switch x.rng.IntN(14) {
	case 0, 1, 2:
		x.openFile(a)
	case 3:
		x.both("mkdir "+a, func(_ int, d string) (string, error) { return "", os.Mkdir(j(d, a), 0o755) })
	case 4:
		x.both("rmdir "+a, func(_ int, d string) (string, error) { return "", unix.Rmdir(j(d, a)) })
	case 5:
		x.both("unlink "+a, func(_ int, d string) (string, error) { return "", unix.Unlink(j(d, a)) })
	case 6:
		x.both("rename "+a+" "+b, func(_ int, d string) (string, error) {
			return "", unix.Rename(j(d, a), j(d, b))
		})
	case 7:
		flags := []uint{unix.RENAME_NOREPLACE, unix.RENAME_EXCHANGE}[x.rng.IntN(2)]
		x.both(fmt.Sprintf("renameat2 %s %s %d", a, b, flags), func(_ int, d string) (string, error) {
			return "", unix.Renameat2(unix.AT_FDCWD, j(d, a), unix.AT_FDCWD, j(d, b), flags)
		})
	case 8:
		x.both("link "+a+" "+b, func(_ int, d string) (string, error) {
			return "", unix.Link(j(d, a), j(d, b))
		})
	case 9:
		x.both("symlink "+a+" "+b, func(_ int, d string) (string, error) {
			return "", os.Symlink(filepath.Base(a), j(d, b))
		})
	case 10:
		mode := uint32(x.rng.IntN(0o1000)) | 0o600
		x.both(fmt.Sprintf("chmod %s %o", a, mode), func(_ int, d string) (string, error) {
			return "", unix.Chmod(j(d, a), mode|0o100)
		})
	case 11:
		size := x.offset()
		x.both(fmt.Sprintf("truncate %s %d", a, size), func(_ int, d string) (string, error) {
			return "", os.Truncate(j(d, a), size)
		})
	case 12:
		at := time.Unix(x.rng.Int64N(2e9), x.rng.Int64N(1e9))
		x.both("chtimes "+a, func(_ int, d string) (string, error) {
			return "", os.Chtimes(j(d, a), at, at)
		})
	case 13:
		x.both("stat "+a, func(_ int, d string) (string, error) { return describe(j(d, a)) })
	}
}

func (x *twin) openFile(a string) {
	flags := []int{os.O_RDONLY, os.O_WRONLY, os.O_RDWR}[x.rng.IntN(3)]
	for _, f := range []int{os.O_CREATE, os.O_EXCL, os.O_TRUNC, os.O_APPEND} {
		if x.rng.IntN(3) == 0 {
			flags |= f
		}
	}
	if flags&unix.O_ACCMODE == os.O_RDONLY {
		flags &^= os.O_TRUNC
	}
	var p pair
	ok := x.both(fmt.Sprintf("open %s %#x", a, flags), func(i int, d string) (_ string, err error) {
		p.f[i], err = os.OpenFile(filepath.Join(d, a), flags, 0o644)
		return "", err
	})
	if !ok {
		return
	}
	x.open = append(x.open, p)
	if len(x.open) > 8 {
		x.closeFile(0)
	}
}

func (x *twin) closeFile(i int) {
	p := x.open[i]
	x.open = append(x.open[:i], x.open[i+1:]...)
	x.both("close", func(i int, _ string) (string, error) { return "", p.f[i].Close() })
}

func (x *twin) stepFile(k int) {
	p := x.open[k]
	off, n := x.offset(), x.length()
	switch x.rng.IntN(10) {
	case 0:
		x.closeFile(k)
	case 1, 2, 3:
		data := pattern(n, byte(x.rng.IntN(256)))
		x.both(fmt.Sprintf("pwrite %d at %d", n, off), func(i int, _ string) (string, error) {
			n, err := unix.Pwrite(int(p.f[i].Fd()), data, off)
			return fmt.Sprint(n), err
		})
	case 4, 5, 6:
		x.both(fmt.Sprintf("pread %d at %d", n, off), func(i int, _ string) (string, error) {
			buf := make([]byte, n)
			n, err := unix.Pread(int(p.f[i].Fd()), buf, off)
			return digest(buf[:max(n, 0)]), err
		})
	case 7:
		x.both(fmt.Sprintf("ftruncate %d", off), func(i int, _ string) (string, error) {
			return "", p.f[i].Truncate(off)
		})
	case 8:
		x.both(fmt.Sprintf("punch %d %d", off, n+1), func(i int, _ string) (string, error) {
			return "", unix.Fallocate(int(p.f[i].Fd()), punchMode, off, int64(n)+1)
		})
	case 9:
		x.both("fsync and fstat", func(i int, _ string) (string, error) {
			if err := p.f[i].Sync(); err != nil {
				return "", err
			}
			var st unix.Stat_t
			err := unix.Fstat(int(p.f[i].Fd()), &st)
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				st.Size = 0 // every file system has its own idea
			}
			return fmt.Sprint(st.Size, st.Nlink, st.Mode), err
		})
	}
}

// digest tells bytes apart in few letters.
func digest(b []byte) string {
	sum := uint64(14695981039346656037)
	for _, c := range b {
		sum = (sum ^ uint64(c)) * 1099511628211
	}
	return fmt.Sprintf("%d bytes, %x", len(b), sum)
}

// describe is what lstat says and both places must agree on.
func describe(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return "", err
	}
	s := fmt.Sprintf("mode %o links %d", st.Mode, st.Nlink)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		s += fmt.Sprintf(" size %d", st.Size)
		if st.Mtim.Sec < 1<<31 && time.Since(time.Unix(st.Mtim.Unix())) > time.Hour {
			s += fmt.Sprintf(" mtime %d", st.Mtim.Nano())
		}
	case unix.S_IFLNK:
		target, err := os.Readlink(path)
		return s + " to " + target, err
	}
	return s, nil
}

func (x *twin) compareTrees() {
	x.t.Helper()
	var trees [2]string
	for i, root := range x.dirs {
		var lines []string
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil || path == root {
				return err
			}
			line, err := describe(path)
			if err != nil {
				return err
			}
			if e.Type().IsRegular() {
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				line += " " + digest(data)
			}
			lines = append(lines, strings.TrimPrefix(path, root)+": "+line)
			return nil
		})
		must(x.t, err)
		sort.Strings(lines)
		trees[i] = strings.Join(lines, "\n")
	}
	if trees[0] != trees[1] {
		tail := x.log[max(0, len(x.log)-30):]
		x.t.Fatalf("trees differ\nmount:\n%s\nlocal:\n%s\nlast:\n%s", trees[0], trees[1],
			strings.Join(tail, "\n"))
	}
}
