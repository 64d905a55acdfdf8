package systest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	nbdENOSPC     = 28
	nbdStructured = 0x668e33ef
)

func isNBDError(err error, errno int) bool {
	return err != nil && err.Error() == fmt.Sprint("nbd error ", errno)
}

// TestBlockReadError: a file that is cut under its server is a disk with bad blocks. A read across
// them ends with an error chunk that says where; what is left of the file is served; when the file
// is whole again, so is the device, on the same connections.
func TestBlockReadError(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "disk")
	must(t, os.WriteFile(path, bytes.Repeat([]byte{7}, deviceBytes), 0o600))
	d := serveBlock(t, nil, "--export", "name=disk,file="+path)
	c, err := dialNBD("unix", d.sock, "disk")
	must(t, err)
	defer c.close()
	const cut, length = deviceBytes / 2, 1 << 20
	s := dialRaw(t, d.sock)
	s.say(uint32(3))
	if kind := s.option(8, nil); kind != 1 {
		t.Fatalf("STRUCTURED_REPLY: %#x", kind)
	}
	if kind := s.option(7, bigEndian(uint32(4), "disk", uint16(0))); kind != 1 {
		t.Fatalf("GO: %#x", kind)
	}
	must(t, os.Truncate(path, cut))
	p := make([]byte, length)
	if err := c.read(p, cut-length/2); !isNBDError(err, nbdEIO) {
		t.Errorf("a read across the end: %v", err)
	}
	at := s.readError(t, cut-length/2, length)
	if at < cut-length/2 || at >= cut+length/2 {
		t.Errorf("the error chunk of a read at %d says %d; the file ends at %d", cut-length/2, at, cut)
	}
	must(t, c.read(p, 0))
	if !bytes.Equal(p, bytes.Repeat([]byte{7}, length)) {
		t.Error("what is left holds other bytes")
	}
	must(t, os.Truncate(path, deviceBytes))
	must(t, c.read(p, cut-length/2))
	if p[0] != 7 || p[length-1] != 0 {
		t.Errorf("the file that is whole again reads as %d, %d", p[0], p[length-1])
	}
	must(t, c.write(p, cut, true))
}

// readError sends a read whose structured reply must end with an error, and returns the offset that
// it names.
func (c *rawNBD) readError(t *testing.T, off uint64, length uint32) uint64 {
	t.Helper()
	c.say(uint32(nbdRequest), uint16(0), uint16(nbdCmdRead), uint64(3), off, length)
	at := uint64(0)
	failed := false
	for {
		h := c.take(20)
		kind, data := binary.BigEndian.Uint16(h[6:]), c.take(int(binary.BigEndian.Uint32(h[16:])))
		if binary.BigEndian.Uint32(h) != nbdStructured {
			t.Fatalf("chunk %x", h)
		}
		if kind == 32770 { // error with an offset
			n := int(binary.BigEndian.Uint16(data[4:]))
			failed, at = true, binary.BigEndian.Uint64(data[6+n:])
			if errno := binary.BigEndian.Uint32(data); errno != nbdEIO {
				t.Errorf("error %d", errno)
			}
		}
		if binary.BigEndian.Uint16(h[4:])&1 != 0 {
			if !failed {
				t.Error("no error chunk has an offset")
			}
			return at
		}
	}
}

// TestBlockNoSpace: a file with holes on a full disk is ENOSPC to who writes into them, what is
// there can be read and written, and with room the device goes on, on the same connection.
func TestBlockNoSpace(t *testing.T) {
	disk := newDisk(t, 64<<20)
	path := filepath.Join(disk.dir, "disk")
	must(t, os.WriteFile(path, bytes.Repeat([]byte{1}, 1<<20), 0o600))
	must(t, os.Truncate(path, 128<<20))
	d := serveBlock(t, nil, "--export", "name=disk,file="+path)
	c, err := dialNBD("unix", d.sock, "disk")
	must(t, err)
	defer c.close()
	untilFull(t, c, 128)
	p := bytes.Repeat([]byte{2}, 64<<10)
	must(t, c.write(p, 0, true)) // it has its place
	got := make([]byte, len(p))
	must(t, c.read(got, 0))
	if !bytes.Equal(got, p) {
		t.Error("what was written on a full disk reads otherwise")
	}
	must(t, c.do(4, 0, 1<<20, 32<<20, nil, nil)) // a trim makes room
	must(t, c.flush())
	must(t, c.write(p, 100<<20, true))
	d.endedAfter(t, c)
}

// untilFull writes a MiB after the other until one is refused for want of space; that must happen.
// It returns which.
func untilFull(t *testing.T, c *nbdClient, most int) int {
	t.Helper()
	for i := range most {
		err := c.write(fullPage(), uint64(i)<<20, true)
		if isNBDError(err, nbdENOSPC) {
			t.Logf("full after %d MiB", i)
			return i
		}
		must(t, err)
	}
	t.Fatal("a device larger than its disk took everything")
	return 0
}

// fullPage is what untilFull writes.
func fullPage() []byte { return bytes.Repeat([]byte{3}, 1<<20) }

// endedAfter ends a server whose log names errors of its backend.
func (d *device) endedAfter(t *testing.T, c *nbdClient) {
	t.Helper()
	c.close()
	d.ended(t)
}

// TestVolumeNoSpace: a volume of a cluster whose disk is full is ENOSPC to who writes where nothing
// was, and goes on when there is room.
func TestVolumeNoSpace(t *testing.T) {
	disk := newDisk(t, 400<<20)
	c := startCluster(t, clusterOptions{iods: 2, dir: filepath.Join(disk.dir, "c")})
	c.sluice(t, "volume", "create", "disk", "1G")
	d := serveBlock(t, c, "--export", "name=disk,volume=disk")
	n, err := dialNBD("unix", d.sock, "disk")
	must(t, err)
	defer n.close()
	p := bytes.Repeat([]byte{5}, 1<<20)
	must(t, n.write(p, 0, true))
	disk.fill(0) // what the stores have taken for themselves is left
	full := uint64(untilFull(t, n, 1<<10)) << 20
	got := make([]byte, len(p))
	must(t, n.read(got, 0))
	if !bytes.Equal(got, fullPage()) {
		t.Error("other bytes are read from a volume on a full disk")
	}
	disk.empty()
	c.within(t, "writing goes on", func() error { return n.write(p, full, true) })
	must(t, n.flush())
	must(t, n.read(got, full))
	if !bytes.Equal(got, p) {
		t.Error("other bytes are read from a volume that was full")
	}
}

// TestBlockBackendGone: while an I/O server does not answer, requests for its part of a volume fail
// with EIO after the time that the gateway was told, the other part is served, and when it is back
// the same connection goes on. The server was in the middle of things: nothing of what was
// acknowledged is lost.
func TestBlockBackendGone(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{iods: 2})
	c.sluice(t, "volume", "create", "--unit", "64K", "disk", fmt.Sprint(deviceBytes))
	d := serveBlock(t, c, "--export", "name=disk,volume=disk", "--timeout", "8s")
	n, err := dialNBD("unix", d.sock, "disk")
	must(t, err)
	defer n.close()
	unit := func(i int) []byte { return bytes.Repeat([]byte{byte(i + 1)}, 64<<10) }
	for i := range 8 {
		c.within(t, "writing", func() error { return n.write(unit(i), uint64(i)<<16, false) })
	}
	pid := c.pidOf(t, "iod1")
	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	c.await(t, "the server stands still", func() bool { return standsStill(t, pid) })
	got := make([]byte, 64<<10)
	failed := 0
	for i := range 2 { // one of two units that follow each other is at the server that is stopped
		switch err := n.read(got, uint64(i)<<16); {
		case isNBDError(err, nbdEIO):
			failed++
		case err != nil:
			t.Errorf("a read: %v", err)
		case !bytes.Equal(got, unit(i)):
			t.Errorf("unit %d reads otherwise", i)
		}
	}
	if failed != 1 {
		t.Errorf("%d of two units cannot be read", failed)
	}
	must(t, syscall.Kill(pid, syscall.SIGCONT))
	for i := range 8 {
		c.within(t, "the device goes on", func() error { return n.read(got, uint64(i)<<16) })
		if !bytes.Equal(got, unit(i)) {
			t.Errorf("unit %d reads otherwise after the pause", i)
		}
	}
	c.within(t, "flushing goes on", n.flush)
	if text := d.log.String(); strings.Contains(text, "panic") {
		t.Error(text)
	}
}

// TestBlockBackendRestart: a gateway outlives a restart of all that is below it; clients wait.
func TestBlockBackendRestart(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{iods: 2})
	c.sluice(t, "volume", "create", "disk", fmt.Sprint(deviceBytes))
	d := serveBlock(t, c, "--export", "name=disk,volume=disk")
	n, err := dialNBD("unix", d.sock, "disk")
	must(t, err)
	defer n.close()
	p := bytes.Repeat([]byte{9}, 1<<20)
	must(t, n.write(p, 0, false))
	for _, name := range []string{"iod1", "iod2", "meta"} {
		must(t, syscall.Kill(c.pidOf(t, name), syscall.SIGKILL))
	}
	begin := time.Now()
	must(t, n.write(p, 8<<20, true))
	must(t, n.flush())
	t.Logf("a write and a flush took %v while everything below was started anew", time.Since(begin))
	got := make([]byte, len(p))
	for _, off := range []uint64{0, 8 << 20} {
		must(t, n.read(got, off))
		if !bytes.Equal(got, p) {
			t.Errorf("other bytes at %d", off)
		}
	}
}

// standsStill tells whether all threads of a process are stopped: on a busy machine some run on for
// a moment.
func standsStill(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	must(t, err)
	for _, at := range threads {
		text, err := os.ReadFile(at)
		must(t, err)
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if fields[0] != "T" {
			return false
		}
	}
	return len(threads) > 0
}
