package systest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

var (
	sharedDirs = []string{"s0", "s1"}
	xattrNames = []string{"user.one", "user.two"}
)

// op is one operation of the model, as data: what it is about does not depend on what was done
// before it, so that it can be done again without the others.
type op struct {
	kind   string
	mount  int
	a, b   string // names; b of those operations that have two
	slot   int    // which open file, counted around
	off    int64
	n      int
	flags  int
	number uint32 // content, time or mode
}

func (o op) String() string {
	return fmt.Sprintf("%s mount=%d a=%s b=%s slot=%d off=%d n=%d flags=%#x number=%d", o.kind,
		o.mount, o.a, o.b, o.slot, o.off, o.n, o.flags, o.number)
}

// kinds are the operations, as often as they are drawn.
var kinds = strings.Fields(`open open open open mkdir mkdir rmdir unlink unlink rename rename rename
	renameat2 link link symlink chmod chown truncate utimes stat readlink setxattr getxattr
	removexattr put put put get get get append append pwrite pwrite pwrite pwrite pread pread pread
	pread ftruncate punch sync close close mkfifo`)

func drawOps(rng *rand.Rand, n int) []op {
	ops := make([]op, n)
	for i := range ops {
		o := op{kind: kinds[rng.IntN(len(kinds))], mount: rng.IntN(2), a: drawName(rng),
			slot: rng.IntN(8), number: rng.Uint32()}
		// Near borders of pages, of small files and of stripe units.
		o.off = max([]int64{0, 0, 4096, smallMax, 64 << 10, 1 << 20}[rng.IntN(6)]+
			int64(rng.IntN(6000))-3000, 0)
		o.n = rng.IntN([]int{10, 3000, 5000, 200000}[rng.IntN(4)])
		switch o.kind {
		case "open":
			o.flags = []int{os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR}[rng.IntN(4)]
			for _, f := range []int{os.O_CREATE, os.O_CREATE, os.O_EXCL, os.O_TRUNC, os.O_APPEND} {
				if rng.IntN(3) == 0 && (f != os.O_TRUNC || o.flags&unix.O_ACCMODE != os.O_RDONLY) {
					o.flags |= f
				}
			}
		case "renameat2":
			o.flags = []int{unix.RENAME_NOREPLACE, unix.RENAME_EXCHANGE}[rng.IntN(2)]
			o.b = drawName(rng)
		case "rename", "link", "symlink":
			o.b = drawName(rng)
		}
		ops[i] = o
	}
	return ops
}

// drawName is one of few names, so that operations meet.
func drawName(rng *rand.Rand) string {
	parts := []string{sharedDirs[rng.IntN(len(sharedDirs))]}
	for range 1 + rng.IntN(3) {
		parts = append(parts, string(rune('a'+rng.IntN(4))))
	}
	return strings.Join(parts, "/")
}

// do does the operation in both places.
func (o op) do(x *twins) {
	switch o.kind {
	case "open":
		o.openFile(x)
	case "put", "get", "append", "truncate":
		o.whole(x)
	case "pwrite", "pread", "ftruncate", "punch", "sync", "close":
		o.onHandle(x)
	default:
		o.onName(x)
	}
}

func (o op) onName(x *twins) {
	if o.kind == "utimes" || o.kind == "stat" { // a large file's length and times come with its data
		if ino := x.modelIno(o.a); ino != 0 {
			x.turn(o.mount, ino, 0)
		}
	}
	x.both(fmt.Sprintf("%s %s %s", o.kind, o.a, o.b), o.mount, func(_, root int) (string, error) {
		a := x.path(root, o.a)
		b := ""
		if o.b != "" {
			b = x.path(root, o.b)
		}
		switch o.kind {
		case "mkdir":
			return "", os.Mkdir(a, 0o755)
		case "rmdir":
			return "", unix.Rmdir(a)
		case "unlink":
			return "", unix.Unlink(a)
		case "rename":
			return "", unix.Rename(a, b)
		case "renameat2":
			return "", unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, uint(o.flags))
		case "link":
			return "", unix.Link(a, b)
		case "symlink":
			return "", os.Symlink(x.own+filepath.Base(o.a), b)
		case "mkfifo":
			return "", unix.Mkfifo(a, 0o600)
		case "readlink":
			return os.Readlink(a)
		case "stat":
			said, _, _ := describeName(a)
			return said, nil
		}
		return o.onAttribute(a)
	})
}

func (o op) onAttribute(path string) (string, error) {
	attr := xattrNames[o.number%2]
	switch o.kind {
	case "chmod":
		return "", unix.Chmod(path, o.number&0o777|0o700)
	case "chown":
		return "", unix.Lchown(path, int(o.number%3), int(o.number%5))
	case "utimes":
		at := time.Unix(int64(o.number%1_500_000_000), int64(o.number%1_000_000_000))
		return "", os.Chtimes(path, at, at)
	case "setxattr":
		return "", unix.Setxattr(path, attr, content64(o.number, o.n%300), int(o.number/2%3))
	case "removexattr":
		return "", unix.Removexattr(path, attr)
	case "getxattr":
		value := make([]byte, 512)
		n, err := unix.Getxattr(path, attr, value)
		return sum(value[:max(n, 0)]), err
	}
	panic("no such operation: " + o.kind)
}

// content64 is bytes that a number stands for.
func content64(number uint32, n int) []byte {
	return record(uint64(number), n, n+8)[:n]
}

// whole is what programs do with whole files: open, do, close.
func (o op) whole(x *twins) {
	ino, end := x.modelIno(o.a), o.off
	var st unix.Stat_t
	if o.kind == "put" {
		end = int64(o.n)
	} else if o.kind == "append" && unix.Stat(x.path(2, o.a), &st) == nil {
		end = st.Size + int64(o.n)
	}
	if ino != 0 {
		x.turn(o.mount, ino, end)
	}
	x.both(fmt.Sprintf("%s %s %d %d", o.kind, o.a, o.off, o.n), o.mount,
		func(_, root int) (string, error) {
			path := x.path(root, o.a)
			switch o.kind {
			case "put":
				return "", putFile(path, os.O_TRUNC, content64(o.number, o.n))
			case "append":
				return "", putFile(path, os.O_APPEND, content64(o.number, o.n))
			case "truncate":
				return "", os.Truncate(path, o.off)
			}
			f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
			if err != nil {
				return "", err
			}
			defer f.Close()
			buf := make([]byte, 2<<20)
			n, err := f.Read(buf)
			if err != nil && n == 0 {
				n = 0
			}
			return sum(buf[:n]), err
		})
	if now := x.modelIno(o.a); now != 0 && end > smallMax {
		x.large[now] = true
	}
}

// putFile writes a file whole, or appends to it. Fifos are not waited for.
func putFile(path string, flag int, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|unix.O_NONBLOCK|flag, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// openMax is how many files are kept open.
const openMax = 8

func (o op) openFile(x *twins) {
	if ino := x.modelIno(o.a); ino != 0 {
		x.turn(o.mount, ino, 0)
	}
	h := twin{mount: o.mount}
	what := fmt.Sprintf("open %s %#x", o.a, o.flags)
	ok := x.both(what, o.mount, func(i, root int) (_ string, err error) {
		h.f[i], err = os.OpenFile(x.path(root, o.a), o.flags|unix.O_NONBLOCK, 0o644)
		return "", err
	})
	if !ok {
		return
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(h.f[1].Fd()), &st); err != nil {
		x.fail("fstat: %v", err)
		return
	}
	if st.Mode&unix.S_IFMT == unix.S_IFIFO { // reading and writing it is the kernel's own affair
		_, _ = h.f[0].Close(), h.f[1].Close()
		return
	}
	h.ino = st.Ino
	x.open = append(x.open, h)
	if len(x.open) > openMax {
		x.closeTwin(0)
	}
}

// onHandle does something with a file that is open, also if it has no name any more.
func (o op) onHandle(x *twins) {
	if len(x.open) == 0 {
		return
	}
	k := o.slot % len(x.open)
	h := x.open[k]
	var st unix.Stat_t
	if err := unix.Fstat(int(h.f[1].Fd()), &st); err != nil {
		x.fail("fstat: %v", err)
		return
	}
	end := o.off
	if o.kind == "pwrite" {
		end = max(o.off, st.Size) + int64(o.n) // it may append
	}
	x.turn(h.mount, h.ino, end)
	if o.kind == "close" {
		for i := range x.open {
			if x.open[i].f == h.f {
				x.closeTwin(i)
				break
			}
		}
		return
	}
	what := fmt.Sprintf("%s #%d %d %d", o.kind, h.ino, o.off, o.n)
	x.both(what, h.mount, func(i, _ int) (string, error) { return o.onFile(h.f[i]) })
}

func (o op) onFile(f *os.File) (string, error) {
	fd := int(f.Fd())
	switch o.kind {
	case "pwrite":
		n, err := unix.Pwrite(fd, content64(o.number, o.n), o.off)
		return fmt.Sprint(n), err
	case "pread":
		buf := make([]byte, o.n)
		n, err := unix.Pread(fd, buf, o.off)
		return sum(buf[:max(n, 0)]), err
	case "ftruncate":
		return "", unix.Ftruncate(fd, o.off)
	case "punch":
		return "", unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, o.off,
			int64(o.n)+1)
	}
	if err := f.Sync(); err != nil {
		return "", err
	}
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		st.Size = 0 // every file system has its own idea
	}
	return fmt.Sprintf("size %d links %d mode %o", st.Size, st.Nlink, st.Mode), err
}
