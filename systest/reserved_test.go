package systest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReservedSpaceOnAFullDisk: what fallocate has given is there when the disk below the stores is
// full to its last byte, after a restart and after the death of the I/O servers, too; whoever has
// reserved nothing is refused, by write, fsync or close.
func TestReservedSpaceOnAFullDisk(t *testing.T) {
	d := newDisk(t, 500<<20)
	c := startCluster(t, clusterOptions{iods: 2, mount: true, dir: filepath.Join(d.dir, "c")})
	const size = 24 << 20
	_, empty := df(t, c.mnt)
	name := filepath.Join(c.mnt, "reserved")
	f, err := os.Create(name)
	must(t, err)
	must(t, unix.Fallocate(int(f.Fd()), 0, 0, size))
	must(t, unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, size, size))
	must(t, f.Sync())
	c.reserveTooMuch(t, f, 6*size, empty-2*size)
	must(t, f.Close())
	writeUntilFull(t, filepath.Join(c.mnt, "big"))
	d.fill(0)

	want := make([]byte, 2*size)
	rnd := rand.New(rand.NewPCG(1, 2))
	overwrite := func(times int, upTo int64) {
		t.Helper()
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		must(t, err)
		for i := range times {
			n := 1 + rnd.Int64N([]int64{5000, 300_000, 2 << 20}[i%3])
			off := rnd.Int64N(upTo - n)
			p := bytes.Repeat([]byte{byte(1 + rnd.IntN(255))}, int(n))
			_, err := f.WriteAt(p, off)
			must(t, err)
			if i%4 == 0 {
				must(t, f.Sync())
			}
			copy(want[off:], p)
		}
		must(t, f.Sync())
		must(t, f.Close())
	}
	same := func(upTo int64) {
		t.Helper()
		got, err := os.ReadFile(name)
		must(t, err)
		if !bytes.Equal(got, want[:upTo]) {
			t.Fatalf("%d bytes, or other ones", len(got))
		}
	}
	overwrite(40, size)
	same(size)
	for _, iod := range []string{"iod1", "iod2"} {
		must(t, syscall.Kill(c.pidOf(t, iod), syscall.SIGKILL))
	}
	overwrite(20, size)
	same(size)
	c.restart(t)
	d.fill(0) // a start gives back what nobody uses
	overwrite(20, size)
	overwrite(1, 2*size)
	info, err := os.Stat(name)
	must(t, err)
	same(info.Size())
	run(t, "", "fallocate", "-z", "-n", "-o", "1000", "-l", "20000000", name)
	clear(want[1000:20001000])
	same(info.Size())
	overwrite(20, size)
	same(info.Size())
	err = os.WriteFile(filepath.Join(c.mnt, "other"), make([]byte, 4<<20), 0o644)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a file that has reserved nothing: %v", err)
	}
	d.empty()
}

// reserveTooMuch asks for more than there is, which leaves everything as it was. No more than left
// is free once the reports of the servers are there.
func (c *cluster) reserveTooMuch(t *testing.T, f *os.File, more, left int64) {
	t.Helper()
	var before int64
	c.within(t, "what was reserved is counted", func() error {
		if _, before = df(t, c.mnt); before > left {
			return fmt.Errorf("%d bytes are free, %d should be", before, left)
		}
		return nil
	})
	if err := unix.Fallocate(int(f.Fd()), 0, 0, before+more); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("more than there is: %v", err)
	}
	c.within(t, "what was reserved in vain is free again", func() error {
		if _, after := df(t, c.mnt); after < before-8<<20 {
			return fmt.Errorf("%d bytes were free, %d are", before, after)
		}
		return nil
	})
}
