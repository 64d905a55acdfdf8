package shm

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

func TestArena(t *testing.T) {
	a := NewArenas()
	fds, maps := shared(t)
	mem, free, err := a.Map(10000)
	fatal(t, err)
	if len(mem) != 10000 || cap(mem) != 10000 {
		t.Fatalf("%d bytes", len(mem))
	}
	one, off := a.find(mem[100:200])
	if one == nil || off != 100 {
		t.Fatalf("found at %d", off)
	}
	fatal(t, checkMemfd(one.fd, int64(one.size), false))
	for _, b := range [][]byte{make([]byte, 10), nil} {
		if other, _ := a.find(b); other != nil {
			t.Fatal("memory that is in no arena was found in one")
		}
	}
	fatal(t, free())
	fatal(t, free())
	if f, m := shared(t); f != fds || m != maps {
		t.Fatalf("%d descriptors and %d mappings, before %d and %d", f, m, fds, maps)
	}
	if _, _, err := a.Map(0); errs.KindOf(err) != errs.Invalid {
		t.Fatal(err)
	}
	if _, _, err := a.Map(1 << 50); errs.KindOf(err) != errs.NoMemory {
		t.Fatal(err)
	}
}

// TestFindAmongMany looks for memory in one of several arenas.
func TestFindAmongMany(t *testing.T) {
	a := NewArenas()
	var mems [9][]byte
	for i := range mems {
		mem, free, err := a.Map((i + 1) * 4096)
		fatal(t, err)
		defer func() { fatal(t, free()) }()
		mems[i] = mem
	}
	for i, mem := range mems {
		one, off := a.find(mem[i*4096+1:])
		if one == nil || off != i*4096+1 || &one.mem[0] != &mem[0] {
			t.Fatalf("arena %d: found at %d", i, off)
		}
	}
}

// TestMemoryFull fills a file system of memory that has a limit: an error, and no fault later.
func TestMemoryFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount")
	}
	dir := t.TempDir()
	done := make(chan error)
	var kind errs.Kind
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its namespace
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return err
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
				return err
			}
			fd, err := unix.Open(filepath.Join(dir, "f"), unix.O_RDWR|unix.O_CREAT, 0o600)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			_, err = populate(fd, 4<<20, false)
			kind = errs.KindOf(err)
			return nil
		}()
	}()
	fatal(t, <-done)
	if kind != errs.NoSpace {
		t.Fatalf("a full file system gave %v", kind)
	}
}

// forge makes memory files that are not what they should be.
func forge(t *testing.T, size int64, allocated bool, with int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("forged", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	fatal(t, err)
	fatal(t, unix.Ftruncate(fd, size))
	if allocated {
		fatal(t, allocate(fd, size))
	}
	if with != 0 {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, with)
		fatal(t, err)
	}
	return fd
}

// forgeries are files that nobody may map, by what is wrong with them.
func forgeries(t *testing.T, size int64) map[string]int {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	fatal(t, os.WriteFile(name, make([]byte, size), 0o600))
	plain, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
	fatal(t, err)
	all := map[string]int{
		"not sealed":             forge(t, size, true, 0),
		"sealed against growing": forge(t, size, true, unix.F_SEAL_GROW|unix.F_SEAL_SEAL),
		"could be sealed more":   forge(t, size, true, unix.F_SEAL_GROW|unix.F_SEAL_SHRINK),
		"cannot be written":      forge(t, size, true, seals|unix.F_SEAL_WRITE),
		"too small":              forge(t, size/2, true, seals),
		"too large":              forge(t, size*2, true, seals),
		"lacks pages":            forge(t, size, false, seals),
		"a plain file":           plain,
	}
	var pipe [2]int
	fatal(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	fatal(t, unix.Close(pipe[1]))
	all["a pipe"] = pipe[0]
	t.Cleanup(func() {
		for _, fd := range all {
			_ = unix.Close(fd)
		}
	})
	return all
}

func TestForgedMemory(t *testing.T) {
	const size = 64 << 10
	for name, fd := range forgeries(t, size) {
		if mem, err := openMemfd(fd, size); errs.KindOf(err) != errs.Protocol || mem != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := forge(t, size, true, seals)
	defer unix.Close(good)
	mem, err := openMemfd(good, size)
	fatal(t, err)
	fatal(t, unix.Munmap(mem))
	for _, wrong := range []int64{0, -1, size - 1, size + 4096} {
		if _, err := openMemfd(good, wrong); errs.KindOf(err) != errs.Protocol {
			t.Errorf("size %d: %v", wrong, err)
		}
	}
}
