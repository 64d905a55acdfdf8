package mount

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAppendedAndRead: what is appended through one open file is seen at once through another one
// that reads by the kernel's pages, and through a mapping of the same file.
func TestAppendedAndRead(t *testing.T) {
	p := filepath.Join(newMount(t), "f")
	must(t, os.WriteFile(p, []byte("start"), 0o644))
	r := open(t, p, os.O_RDONLY)
	w := open(t, p, os.O_RDWR|os.O_APPEND)
	m, err := unix.Mmap(int(w.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	must(t, err)
	defer unix.Munmap(m)
	want := "start"
	buf := make([]byte, 4096)
	for i := range 100 {
		line := string(rune('a' + i%26))
		n, err := w.WriteString(line)
		if err != nil || n != 1 {
			t.Fatalf("%d, %v", n, err)
		}
		want += line
		if n, _ := r.ReadAt(buf, 0); string(buf[:n]) != want {
			t.Fatalf("after %d appends: %q, want %q", i+1, buf[:n], want)
		}
		if string(m[:len(want)]) != want {
			t.Fatalf("after %d appends: %q mapped, want %q", i+1, m[:len(want)], want)
		}
	}
	// A file that gets O_APPEND later.
	f := open(t, p, os.O_RDWR)
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETFL, unix.O_APPEND)
	must(t, err)
	_, err = f.WriteString("late")
	must(t, err)
	equalFile(t, p, []byte(want+"late"))
}
