package mount

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// slowReader reads a directory as a program does that looks at every name before it reads on.
type slowReader struct {
	t   *testing.T
	dir *os.File
	buf [1 << 10]byte
}

// some reads some names; none at the end. The kernel asks for attributes with the next ones if it
// has needed those of some: so these are looked at.
func (r *slowReader) some() []string {
	r.t.Helper()
	n, err := unix.Getdents(int(r.dir.Fd()), r.buf[:])
	must(r.t, err)
	_, _, names := unix.ParseDirent(r.buf[:n], -1, nil)
	for _, name := range names {
		var st unix.Stat_t
		_ = unix.Lstat(filepath.Join(r.dir.Name(), name), &st)
	}
	return names
}

// TestReadingOnAfterAChange: what was read ahead of a directory does not bring back what this mount
// has changed in the meantime.
func TestReadingOnAfterAChange(t *testing.T) {
	m := newCluster(t, 1).mount(Options{})
	dir, other := filepath.Join(m.Dir(), "d"), filepath.Join(m.Dir(), "e")
	must(t, os.Mkdir(dir, 0o755))
	must(t, os.Mkdir(other, 0o755))
	const files = 300
	name := func(i int) string { return filepath.Join(dir, fmt.Sprintf("file-%03d", i)) }
	for i := range files {
		must(t, os.WriteFile(name(i), []byte("x"), 0o644))
	}
	must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	must(t, os.Link(name(205), filepath.Join(other, "link")))
	r := &slowReader{t: t, dir: open(t, dir, os.O_RDONLY)}
	r.some()

	must(t, os.Remove(name(200)))
	must(t, os.Rename(name(201), filepath.Join(other, "moved")))
	must(t, os.Rename(name(202), name(203)))
	must(t, os.Remove(filepath.Join(dir, "sub")))
	listRest(t, r)
	for _, i := range []int{200, 201, 202} {
		_, err := os.Lstat(name(i))
		want(t, err, unix.ENOENT)
		_ = open(t, name(i), os.O_CREATE|os.O_EXCL|os.O_WRONLY)
	}
	must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))

	// Attributes change while the names stay.
	r = &slowReader{t: t, dir: open(t, dir, os.O_RDONLY)}
	r.some()
	must(t, os.Chmod(name(204), 0o600))
	must(t, os.Remove(filepath.Join(other, "link")))
	must(t, os.WriteFile(name(206), []byte("more"), 0o644))
	must(t, unix.Setxattr(name(207), "user.x", []byte("y"), 0))
	must(t, os.Mkdir(filepath.Join(dir, "sub", "sub"), 0o755))
	after := stats(t, name(204), name(205), name(206), name(207), filepath.Join(dir, "sub"))
	listRest(t, r)
	for p, was := range after {
		if got := stats(t, p)[p]; got != was {
			t.Errorf("%s is %+v after reading on, it was %+v", p, got, was)
		}
	}
}

// listRest reads a directory to its end.
func listRest(t *testing.T, r *slowReader) {
	t.Helper()
	n := 0
	for names := r.some(); len(names) > 0; names = r.some() {
		for _, name := range names {
			if strings.HasPrefix(name, "file-") {
				n++
			}
		}
	}
	if n < 200 {
		t.Errorf("%d names were left to be read", n)
	}
}

func stats(t *testing.T, paths ...string) map[string]unix.Stat_t {
	t.Helper()
	all := map[string]unix.Stat_t{}
	for _, p := range paths {
		var st unix.Stat_t
		must(t, unix.Lstat(p, &st))
		st.Atim = unix.Timespec{}
		all[p] = st
	}
	return all
}
