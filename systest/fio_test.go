package systest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fioMode is one way in which programs read and write: every byte is verified by its checksum.
type fioMode struct {
	name string
	args string
}

// fioModes are engines, with and without the kernel's pages, and the ways to sync. Sizes are small:
// there are many, and what counts is that each is tried.
var fioModes = []fioMode{
	{"psync", "--ioengine=psync --rw=randwrite --bsrange=512-64k --size=8m"},
	{"psync-fsync", "--ioengine=psync --rw=randrw --bs=4k --size=1m --fsync=1"},
	{"psync-fdatasync", "--ioengine=psync --rw=randwrite --bs=4k --size=1m --fdatasync=1"},
	{"psync-direct", "--ioengine=psync --rw=randrw --bs=4k --size=4m --direct=1"},
	{"sync-range", "--ioengine=sync --rw=write --bs=16k --size=8m --sync_file_range=write:8"},
	{"osync", "--ioengine=psync --rw=randwrite --bs=4k --size=1m --sync=sync"},
	{"odsync-direct", "--ioengine=psync --rw=randwrite --bs=4k --size=1m --sync=dsync --direct=1"},
	{"vsync", "--ioengine=vsync --rw=write --bs=3k --size=4m --iodepth=8"},
	{"pvsync2", "--ioengine=pvsync2 --rw=randrw --bsrange=4k-128k --size=8m --fsync=32"},
	{"pvsync2-direct", "--ioengine=pvsync2 --rw=randwrite --bs=64k --size=8m --direct=1"},
	{"libaio", "--ioengine=libaio --rw=randrw --bs=8k --size=8m --iodepth=8"},
	{"libaio-direct", "--ioengine=libaio --rw=randrw --bs=16k --size=8m --iodepth=16 --direct=1"},
	{"posixaio", "--ioengine=posixaio --rw=randwrite --bs=8k --size=4m --iodepth=4 --fsync=64"},
	{"uring", "--ioengine=io_uring --rw=randrw --bs=8k --size=8m --iodepth=16"},
	{"uring-direct", "--ioengine=io_uring --rw=randwrite --bs=32k --size=8m --iodepth=16 --direct=1 " +
		"--fixedbufs=1 --registerfiles=1"},
	{"uring-fsync", "--ioengine=io_uring --rw=randwrite --bs=4k --size=1m --iodepth=4 --fdatasync=4"},
	{"mmap", "--ioengine=mmap --rw=randrw --bs=4k --size=4m --fsync=64"},
	{"append", "--ioengine=psync --rw=write --bs=5k --size=4m --file_append=1"},
	{"pattern", "--ioengine=psync --rw=randwrite --bs=64k --size=4m --verify=pattern " +
		"--verify_pattern=0xa5"},
	{"many-files", "--ioengine=psync --rw=randwrite --bs=4k --nrfiles=40 --filesize=4k-64k " +
		"--openfiles=8"},
	{"jobs-on-one-file", "--ioengine=psync --rw=randrw --bs=4k --size=2m --numjobs=4 " +
		"--offset_increment=2m --filename=one"},
	{"splice", "--ioengine=splice --rw=write --bs=16k --size=4m"},
}

// run runs one mode in a folder, where fio verifies all that it has written.
func (m fioMode) run(t *testing.T, dir string) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o755))
	notes := t.TempDir() // fio leaves notes for a later verification where it runs
	args := []string{"--name=" + m.name, "--directory=" + dir, "--verify=crc32c", "--verify_fatal=1",
		"--do_verify=1", "--group_reporting", "--randrepeat=0", "--fallocate=none"}
	run(t, notes, "fio", append(args, strings.Fields(m.args)...)...)
}

// TestFioModes runs fio in every mode that programs use, several at once on one mount.
func TestFioModes(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{iods: 3, mount: true})
	for _, m := range fioModes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			if strings.HasPrefix(m.name, "uring") && !hasUring() {
				t.Skip("this kernel does not allow io_uring here")
			}
			m.run(t, filepath.Join(c.mnt, m.name))
		})
	}
}

// hasUring tells whether programs may use io_uring here. Kernels before 6.6 do not say: they have
// it.
func hasUring() bool {
	text, err := os.ReadFile("/proc/sys/kernel/io_uring_disabled")
	return err != nil || strings.TrimSpace(string(text)) != "2"
}

// TestKillServersUnderFio kills I/O servers and the metadata service while fio writes, syncs, reads
// and verifies. fio sees no error and no other byte: it waits.
func TestKillServersUnderFio(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{iods: 3, mount: true})
	seconds := int(soak(5*time.Second, time.Minute).Seconds())
	limit := fmt.Sprintf(" --time_based --runtime=%d", seconds)
	// Requests that are under way together must not overlap, so this one does not begin anew.
	paced := fmt.Sprintf(" --size=%dm --rate=4m", 8*seconds)
	modes := []fioMode{
		{"buffered", "--ioengine=psync --rw=randrw --bsrange=4k-64k --size=8m --fsync=16" + limit},
		{"direct", "--ioengine=libaio --rw=randrw --bs=16k --iodepth=8 --direct=1" + paced},
		{"small-syncs", "--ioengine=psync --rw=randwrite --bs=4k --size=2m --fdatasync=1" + limit},
	}
	kills := 0
	for try := 0; try < 10 && kills < 3 && !t.Failed(); try++ { // few are, on a busy machine
		stop, done := make(chan struct{}), make(chan int)
		go func() { done <- c.killInTurn(stop, time.Second, "iod1", "meta", "iod2", "iod3") }()
		t.Run("modes", func(t *testing.T) {
			for _, m := range modes {
				t.Run(m.name, func(t *testing.T) {
					t.Parallel()
					m.run(t, filepath.Join(c.mnt, fmt.Sprint(m.name, try)))
				})
			}
		})
		close(stop)
		kills += <-done
	}
	if kills < 3 {
		t.Errorf("only %d servers were killed", kills)
	}
}
