package systest

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// smallMax is up to which size files are exact between mounts at every moment. The data of larger
// ones is promised from close to open.
const smallMax = 16 << 10

// twins does operations on one of two mounts and on the model, and compares.
type twins struct {
	roots [3]string // mounts and model, with the folder of this run
	own   string    // what this program's names in shared directories begin with
	open  []twin
	large map[uint64]bool // inodes of the model that have been larger than smallMax
	log   []string
	at    int          // the operation that is done
	idle  map[int]bool // operations that the model refused
	err   error
}

// twin is a file that is open on a mount and in the model.
type twin struct {
	f     [2]*os.File
	mount int
	ino   uint64
}

func newTwins(roots [3]string, shared, own string) *twins {
	x := &twins{own: own, large: map[uint64]bool{}, idle: map[int]bool{}}
	for i, root := range roots {
		x.roots[i] = filepath.Join(root, shared)
	}
	x.roots[2] += own // other programs' names are not in this one's model
	return x
}

// prepare makes the model's copy of the shared directories.
func (x *twins) prepare() error {
	for _, dir := range sharedDirs {
		if err := os.MkdirAll(filepath.Join(x.roots[2], dir), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// run does all operations, or those up to the first difference, which is the error.
func (x *twins) run(ops []op) error {
	defer x.closeAll()
	for i, o := range ops {
		x.at = i
		o.do(x)
		x.look(o)
		if i%250 == 249 || i == len(ops)-1 {
			x.compareTrees()
		}
		if x.err != nil {
			return x.err
		}
	}
	return nil
}

// fail notes the first difference, with what was done before it.
func (x *twins) fail(format string, args ...any) {
	if x.err == nil {
		x.err = fmt.Errorf("operation %d: %s\nbefore:\n%s", x.at, fmt.Sprintf(format, args...),
			strings.Join(x.log[max(0, len(x.log)-25):], "\n"))
	}
}

func (x *twins) closeAll() {
	for _, h := range x.open {
		_ = h.f[0].Close()
		_ = h.f[1].Close()
	}
	x.open = nil
}

// path is a name below one of the roots.
func (x *twins) path(root int, name string) string {
	shared, rest, _ := strings.Cut(name, "/")
	return filepath.Join(x.roots[root], shared, x.own+rest)
}

// both runs something on a mount and on the model, i being 0 for the one and 1 for the other, and
// compares what it says.
func (x *twins) both(what string, mount int, do func(i, root int) (string, error)) bool {
	if x.err != nil {
		return false
	}
	var said [2]string
	var failed [2]error
	for i, root := range []int{mount, 2} {
		said[i], failed[i] = patiently(func() (string, error) { return do(i, root) })
	}
	x.log = append(x.log, fmt.Sprintf("%4d mount %d: %s -> %.60s %v", x.at, mount, what, said[1],
		failed[1]))
	if failed[1] != nil {
		x.idle[x.at] = true
	}
	if errnoOf(failed[0]) != errnoOf(failed[1]) || said[0] != said[1] {
		x.fail("%s on mount %d:\nmount: %s %v\nmodel: %s %v", what, mount, said[0], failed[0], said[1],
			failed[1])
		return false
	}
	return failed[1] == nil
}

// patiently repeats what ended with ESTALE. The kernel says so when a directory that it knows has
// moved elsewhere, by another mount, and its own locks are busy at the moment (d_splice_alias); it
// repeats a path walk once by itself. No file system can help it.
func patiently(do func() (string, error)) (said string, err error) {
	for end := time.Now().Add(busyMax); ; time.Sleep(2 * time.Millisecond) {
		if said, err = do(); !errors.Is(err, unix.ESTALE) || time.Now().After(end) {
			return said, err
		}
	}
}

// errnoOf is an error without names of files.
func errnoOf(err error) string {
	var no unix.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &no):
		return no.Error()
	}
	return err.Error()
}

// modelIno is the inode that a name stands for in the model, 0 if there is none.
func (x *twins) modelIno(name string) uint64 {
	var st unix.Stat_t
	if unix.Stat(x.path(2, name), &st) != nil {
		return 0
	}
	return st.Ino
}

// turn is called before a mount looks at or changes the data of an inode, that will be up to size
// bytes long. If the file is large, what the other mount has open of it is closed before: that is
// what its users have to do to see each other's data.
func (x *twins) turn(mount int, ino uint64, size int64) {
	if size > smallMax {
		x.large[ino] = true
	}
	if !x.large[ino] {
		x.settle(ino)
		return
	}
	for i := len(x.open) - 1; i >= 0; i-- {
		if h := x.open[i]; h.ino == ino && h.mount != mount {
			x.closeTwin(i)
		}
	}
}

// settle syncs what is open of a file: what was written in several pieces that follow each other
// may be gathered by its mount for a moment, and another mount sees it as far as it was sent.
func (x *twins) settle(ino uint64) {
	for _, h := range x.open {
		if h.ino != ino {
			continue
		}
		if err := h.f[0].Sync(); err != nil {
			x.fail("sync on mount %d: %v", h.mount, err)
		}
	}
}

func (x *twins) closeTwin(i int) {
	h := x.open[i]
	x.open = append(x.open[:i:i], x.open[i+1:]...)
	what := fmt.Sprintf("close #%d", h.ino)
	x.both(what, h.mount, func(i, _ int) (string, error) { return "", h.f[i].Close() })
}

// look compares what an operation was about: attributes of its names in all three places, and
// sometimes the listing of a directory.
func (x *twins) look(o op) {
	for _, name := range []string{o.a, o.b} {
		if x.err != nil || name == "" {
			continue
		}
		x.settle(x.modelIno(name))
		var said [3]string
		var numbers [3]uint64
		for i := range x.roots {
			said[i], numbers[i], _ = describeName(x.path(i, name))
		}
		for i := range 2 {
			if x.behind(i, name) {
				said[i] = said[2]
			}
		}
		if said[0] != said[2] || said[1] != said[2] || numbers[0] != numbers[1] {
			x.fail("after %v: %s is\nmount 0: inode %d, %s\nmount 1: inode %d, %s\nmodel:   %s", o, name,
				numbers[0], said[0], numbers[1], said[1], said[2])
		}
	}
	if x.at%4 == 0 {
		x.list(x.at/4%2, filepath.Dir(o.a))
	}
}

// behind tells whether the other mount has a large file open, which it may have written to: its
// length and times are seen here when it is closed.
func (x *twins) behind(mount int, name string) bool {
	ino := x.modelIno(name)
	return x.large[ino] && slices.ContainsFunc(x.open, func(h twin) bool {
		return h.ino == ino && h.mount != mount
	})
}

// list compares the names in a directory on one of the mounts.
func (x *twins) list(mount int, dir string) {
	x.both("readdir "+dir, mount, func(_, root int) (string, error) {
		path, own := x.path(root, dir), ""
		if !strings.Contains(dir, "/") {
			path, own = filepath.Join(x.roots[root], dir), x.own
		}
		entries, err := os.ReadDir(path)
		var names []string
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), own) {
				names = append(names, e.Name()+" "+e.Type().String())
			}
		}
		sort.Strings(names)
		return strings.Join(names, ", "), err
	})
}

// describeName is what lstat says: what mounts and model must agree on, and what only the mounts
// can: the number of an inode, and its times.
func describeName(path string) (said string, ino uint64, times string) {
	var st unix.Stat_t
	_, err := patiently(func() (string, error) { return "", unix.Lstat(path, &st) })
	if err != nil {
		return errnoOf(err), 0, ""
	}
	said = fmt.Sprintf("mode %o links %d owner %d:%d", st.Mode, st.Nlink, st.Uid, st.Gid)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		said += fmt.Sprintf(" size %d", st.Size)
		if time.Since(time.Unix(st.Mtim.Unix())) > time.Hour { // it was set
			said += fmt.Sprintf(" modified %d", st.Mtim.Nano())
		}
	case unix.S_IFLNK:
		target, err := os.Readlink(path)
		said += fmt.Sprint(" to ", target, err)
	}
	return said, st.Ino, fmt.Sprintf("modified %d changed %d", st.Mtim.Nano(), st.Ctim.Nano())
}

// attributes are the extended ones of a file.
func attributes(path string) string {
	var text []string
	for _, name := range xattrNames {
		value := make([]byte, 512)
		if n, err := unix.Lgetxattr(path, name, value); err == nil {
			text = append(text, fmt.Sprintf("%s %x", name, crc32.ChecksumIEEE(value[:n])))
		}
	}
	return strings.Join(text, " ")
}

// compareTrees compares everything in all three places. Large files are closed before.
func (x *twins) compareTrees() {
	for i := len(x.open) - 1; i >= 0; i-- {
		if x.large[x.open[i].ino] {
			x.closeTwin(i)
		} else {
			x.settle(x.open[i].ino)
		}
	}
	var trees, times [3]string
	for i := range x.roots {
		trees[i], times[i] = x.tree(i)
	}
	for i := range 2 {
		if trees[i] != trees[2] {
			x.fail("mount %d:\n%s\nmodel:\n%s", i, trees[i], trees[2])
		}
	}
	// Times of what was written a moment ago are on their way.
	for end := time.Now().Add(busyMax); times[0] != times[1] && x.err == nil; {
		if time.Now().After(end) {
			x.fail("mount 0:\n%s\nmount 1:\n%s", times[0], times[1])
		}
		time.Sleep(100 * time.Millisecond)
		_, times[0] = x.tree(0)
		_, times[1] = x.tree(1)
	}
}

// tree is all that a program has in one place: what all three must agree on, and times.
func (x *twins) tree(root int) (said, times string) {
	var lines, when []string
	for _, dir := range sharedDirs {
		top := filepath.Join(x.roots[root], dir)
		err := filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
			if err != nil || path == top {
				return err
			}
			if filepath.Dir(path) == top && !strings.HasPrefix(e.Name(), x.own) {
				if e.IsDir() { // another program's
					return fs.SkipDir
				}
				return nil
			}
			line, _, at := describeName(path)
			line += " " + attributes(path)
			if e.Type().IsRegular() {
				data, err := os.ReadFile(path)
				line += fmt.Sprint(" ", sum(data), " ", errnoOf(err))
			}
			name := strings.TrimPrefix(path, x.roots[root])
			lines, when = append(lines, name+": "+line), append(when, name+": "+at)
			return nil
		})
		if err != nil {
			x.fail("walking through place %d: %v", root, err)
		}
	}
	sort.Strings(lines)
	sort.Strings(when)
	return strings.Join(lines, "\n"), strings.Join(when, "\n")
}

// sum tells bytes apart in few letters.
func sum(b []byte) string { return fmt.Sprintf("%d bytes, %x", len(b), crc32.ChecksumIEEE(b)) }
