package systest

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const deviceBytes = 32 << 20

// exportKind is a way to serve a device, for clients that nobody here wrote. A new one is a line of
// exportKinds.
type exportKind struct {
	name   string
	export string   // of --export; $N is the Nth of files, whose paths are put in
	files  int      // of deviceBytes in all
	volume bool     // of a cluster with four servers
	by     string   // the cluster's providers; "": the default
	up     []string // further arguments of the cluster
}

func exportKinds() []exportKind {
	return []exportKind{
		{name: "memory", export: fmt.Sprintf("mem=%d", deviceBytes)},
		{name: "file", export: "file=$1", files: 1},
		{name: "direct", export: "file=$1,mode=direct", files: 1},
		{name: "cached", export: "file=$1,mode=cached", files: 1},
		{name: "cached writes", export: "file=$1,mode=cached-writes", files: 1},
		{name: "members", export: "members=$1:$2:$3:$4,unit=64K", files: 4},
		{name: "members direct", export: "members=$1:$2:$3:$4,unit=64K,mode=direct", files: 4},
		{name: "members cached", export: "members=$1:$2:$3:$4,unit=64K,mode=cached", files: 4},
		{name: "volume", export: "volume=disk", volume: true},
		{name: "volume over tcp", export: "volume=disk", volume: true, by: "tcp"},
	}
}

// blockClients are the programs. Each may find what others have left, and leaves what it likes.
func blockClients() map[string]func(*testing.T, *device) {
	return map[string]func(*testing.T, *device){"nbdinfo": nbdInfo, "nbdcopy": nbdCopy,
		"nbdfuse": nbdFuse, "qemu-img": qemuImg, "qemu-io": qemuIO, "fio": fioDevice}
}

// TestBlockClients lets clients that nobody here wrote work on every kind of export.
func TestBlockClients(t *testing.T) {
	for _, k := range exportKinds() {
		t.Run(k.name, func(t *testing.T) {
			d := k.serve(t)
			nbdFresh(t, d)
			for name, client := range blockClients() {
				t.Run(name, func(t *testing.T) { client(t, d) })
			}
			d.ended(t)
		})
	}
}

// device is a block device that a process serves.
type device struct {
	uri, sock string
	args      []string
	cluster   *cluster // of a volume
	cmd       *exec.Cmd
	exited    chan struct{} // is closed when cmd has ended, by result
	result    error
	log       *bytes.Buffer
}

// serve starts a server for an empty device of that kind.
func (k *exportKind) serve(t *testing.T, extra ...string) *device {
	t.Helper()
	export := "name=disk," + k.export
	for i := range k.files {
		path := filepath.Join(t.TempDir(), fmt.Sprintf("part%d", i+1))
		must(t, os.WriteFile(path, nil, 0o600))
		must(t, os.Truncate(path, int64(deviceBytes/k.files)))
		export = strings.ReplaceAll(export, fmt.Sprintf("$%d", i+1), path)
	}
	if !k.volume {
		return serveBlock(t, nil, append([]string{"--export", export}, extra...)...)
	}
	c := startCluster(t, clusterOptions{iods: 4, providers: k.by, extra: k.up})
	c.sluice(t, "volume", "create", "disk", fmt.Sprint(deviceBytes))
	volumeIsStriped(t, c)
	return serveBlock(t, c, append([]string{"--export", export}, extra...)...)
}

// serveBlock starts `sluice nbd`, whose exports are in args, and ends it with the test. The device
// is the one that is called disk. c may be nil.
func serveBlock(t *testing.T, c *cluster, args ...string) *device {
	t.Helper()
	dir, err := os.MkdirTemp("", "nbd") // a socket's name has a hundred bytes at most
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := &device{sock: filepath.Join(dir, "s"), cluster: c, log: &bytes.Buffer{}}
	d.uri = "nbd+unix:///disk?socket=" + d.sock
	d.args = append([]string{"nbd", "--listen", "unix:" + d.sock}, args...)
	if c != nil {
		d.args = append(append(d.args, "--url", c.url), c.opts.args()...)
	}
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill() // ended has done so, unless the test failed
		<-d.exited
		if t.Failed() {
			t.Logf("sluice nbd said:\n%s", tail(d.log.String()))
		}
	})
	d.start(t)
	return d
}

// start starts the server, and waits until it listens.
func (d *device) start(t *testing.T) {
	t.Helper()
	bin, err := builtBinary()
	must(t, err)
	d.cmd = exec.Command(bin, d.args...)
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, d.cmd.Start())
	d.exited = make(chan struct{})
	go func() { d.result = d.cmd.Wait(); close(d.exited) }()
	for deadline := time.Now().Add(readyLimit); !listens(d.sock); time.Sleep(5 * time.Millisecond) {
		if isClosed(d.exited) || time.Now().After(deadline) {
			t.Fatalf("sluice nbd does not listen at %s:\n%s", d.sock, d.log)
		}
	}
}

// ended ends the server in order: it must say nothing of a panic, and end well.
func (d *device) ended(t *testing.T) {
	t.Helper()
	must(t, d.cmd.Process.Signal(syscall.SIGTERM))
	<-d.exited
	if d.result != nil || strings.Contains(d.log.String(), "panic") {
		t.Errorf("the server ended by %v:\n%s", d.result, tail(d.log.String()))
	}
}

// nbdFresh looks at a device that nobody has written to.
func nbdFresh(t *testing.T, d *device) {
	if m := run(t, "", "nbdinfo", "--map", d.uri); !strings.Contains(m, "hole") {
		t.Errorf("a fresh device is not a hole: %s", m)
	}
}

// nbdInfo asks in every way what there is.
func nbdInfo(t *testing.T, d *device) {
	var info struct {
		Exports []struct {
			Name     string   `json:"export-name"`
			Size     int64    `json:"export-size"`
			Contexts []string `json:"contexts"`
			CanFlush bool     `json:"can_flush"`
			CanFUA   bool     `json:"can_fua"`
			CanTrim  bool     `json:"can_trim"`
			CanZero  bool     `json:"can_zero"`
			CanMulti bool     `json:"can_multi_conn"`
			CanDF    bool     `json:"can_df"`
			ReadOnly bool     `json:"is_read_only"`
			Sizes    *int64   `json:"block_size_preferred"`
		} `json:"exports"`
	}
	for _, args := range [][]string{{"--json", d.uri}, {"--json", "--list", d.uri}} {
		must(t, json.Unmarshal([]byte(run(t, "", "nbdinfo", args...)), &info))
		if len(info.Exports) != 1 {
			t.Fatalf("%q: %d exports", args, len(info.Exports))
		}
		e := info.Exports[0]
		if e.Name != "disk" || e.Size != deviceBytes || !e.CanFlush || !e.CanFUA || !e.CanTrim ||
			!e.CanZero || !e.CanMulti || !e.CanDF || e.ReadOnly || e.Sizes == nil ||
			!strings.Contains(fmt.Sprint(e.Contexts), "base:allocation") {
			t.Errorf("nbdinfo %q: %+v", args, e)
		}
	}
	if size := run(t, "", "nbdinfo", "--size", d.uri); size != fmt.Sprintln(deviceBytes) {
		t.Errorf("nbdinfo --size: %s", size)
	}
	if got := mapBytes(t, d.uri, func(uint32) bool { return true }); got != deviceBytes {
		t.Errorf("a map of %d bytes of %d", got, deviceBytes)
	}
	run(t, "", "nbdinfo", "--map", "--totals", d.uri)
	run(t, "", "nbdinfo", "--can", "fua", d.uri)
}

// mapBytes adds up the extents of a device's map whose type (1: a hole, 2: zeroes) is asked for.
func mapBytes(t *testing.T, uri string, wanted func(kind uint32) bool) (sum int64) {
	t.Helper()
	var list []struct {
		Offset, Length int64
		Type           uint32
	}
	must(t, json.Unmarshal([]byte(run(t, "", "nbdinfo", "--map", "--json", uri)), &list))
	at := int64(0)
	for _, e := range list {
		if e.Offset != at {
			t.Fatalf("the map has a gap before %d: %+v", e.Offset, list)
		}
		if at += e.Length; wanted(e.Type) {
			sum += e.Length
		}
	}
	return sum
}

// sparseImage is a file with two runs of data between holes.
func sparseImage(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	must(t, f.Truncate(deviceBytes))
	for _, at := range []struct{ off, n int64 }{{1 << 20, 9 << 20}, {24<<20 + 4096, 1 << 20}} {
		data := make([]byte, at.n)
		_, _ = rand.Read(data)
		_, err := f.WriteAt(data, at.off)
		must(t, err)
	}
	must(t, f.Sync())
}

const imageBytes = 10 << 20 // of a sparseImage that are not a hole

// nbdCopy copies there and back over several connections; holes stay holes.
func nbdCopy(t *testing.T, d *device) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	sparseImage(t, in)
	run(t, "", "nbdcopy", "--flush", "--connections=4", "--requests=32", in, d.uri)
	if data := mapBytes(t, d.uri, func(kind uint32) bool { return kind&2 == 0 }); data < imageBytes ||
		data > imageBytes+4<<20 {
		t.Errorf("after a copy of %d bytes between holes the device has %d bytes of data", imageBytes,
			data)
	}
	run(t, "", "nbdcopy", "--connections=4", d.uri, out)
	run(t, "", "cmp", in, out)
	var st syscall.Stat_t
	must(t, syscall.Stat(out, &st))
	if got := st.Blocks * 512; got > imageBytes+8<<20 {
		t.Errorf("the copy of a sparse device takes %d bytes", got)
	}
	run(t, "", "nbdcopy", "--allocated", "--connections=1", "--synchronous", in, d.uri)
	run(t, "", "nbdcopy", d.uri, out)
	run(t, "", "cmp", in, out)
}

// nbdFuse has the device as a file, through a mount of its own.
func nbdFuse(t *testing.T, d *device) {
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("no FUSE here")
	}
	dir := t.TempDir()
	mnt, in := filepath.Join(dir, "mnt"), filepath.Join(dir, "in")
	file := filepath.Join(mnt, "disk")
	must(t, os.Mkdir(mnt, 0o700))
	sparseImage(t, in)
	cmd := exec.Command("nbdfuse", file, d.uri)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() {
		_ = exec.Command("fusermount3", "-u", "-z", mnt).Run() // if something failed before
		_ = cmd.Process.Kill()
	}()
	for deadline := time.Now().Add(readyLimit); !mounted(mnt); time.Sleep(20 * time.Millisecond) {
		select {
		case err := <-ended:
			t.Fatalf("nbdfuse ended by %v: %s", err, &said)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("nbdfuse does not mount: %s", &said)
		}
	}
	run(t, "", "dd", "if="+in, "of="+file, "bs=1M", "conv=notrunc,fsync", "status=none")
	run(t, "", "cmp", in, file)
	run(t, "", "fusermount3", "-u", mnt)
	if err := <-ended; err != nil {
		t.Errorf("nbdfuse: %v: %s", err, &said)
	}
	out := filepath.Join(dir, "out")
	run(t, "", "nbdcopy", d.uri, out)
	run(t, "", "cmp", in, out)
}

// qemuImg converts an image to the device and back, compares, maps and times it.
func qemuImg(t *testing.T, d *device) {
	dir := t.TempDir()
	raw, src, back := filepath.Join(dir, "raw"), filepath.Join(dir, "src.qcow2"),
		filepath.Join(dir, "back")
	sparseImage(t, raw)
	run(t, "", "qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, src)
	run(t, "", "qemu-img", "convert", "-n", "-W", "-m", "8", "-f", "qcow2", "-O", "raw", src, d.uri)
	run(t, "", "qemu-img", "compare", "-f", "qcow2", "-F", "raw", src, d.uri)
	run(t, "", "qemu-img", "convert", "-f", "raw", "-O", "raw", d.uri, back)
	run(t, "", "cmp", raw, back)
	var extents []struct {
		Start, Length int64
		Data, Zero    bool
	}
	must(t, json.Unmarshal([]byte(run(t, "", "qemu-img", "map", "--output=json", "-f", "raw", d.uri)),
		&extents))
	holes := int64(0)
	for _, e := range extents {
		if e.Zero {
			holes += e.Length
		}
	}
	if holes < deviceBytes/2 || len(extents) < 4 {
		t.Errorf("qemu-img map sees %d bytes of zeroes: %+v", holes, extents)
	}
	run(t, "", "qemu-img", "bench", "-f", "raw", "-c", "300", "-d", "16", "-s", "16384", d.uri)
	run(t, "", "qemu-img", "bench", "-w", "--flush-interval=50", "-f", "raw", "-c", "300", "-d", "16",
		d.uri)
}

// qemuIO writes, zeroes, discards and flushes, in order and not.
func qemuIO(t *testing.T, d *device) {
	commands := []string{
		"write -P 0x5a 0 3M", "write -f -P 0xa5 1M 64k", "flush", "read -P 0x5a 0 1M",
		"read -P 0xa5 1M 64k", "write -z 2M 512k", "read -P 0 2M 512k", "write -z -u 512k 128k",
		"read -P 0 512k 128k", "write -z -f 256k 64k", "read -P 0 256k 64k", "discard 0 256k", "flush",
		"aio_write -P 0x77 4M 1M", "aio_write -P 0x78 5M 1M", "aio_write -z 6M 1M", "aio_flush",
		"read -P 0x77 4M 1M", "read -P 0x78 5M 1M", "read -P 0 6M 1M", "aio_read -P 0x77 4M 1M",
		"aio_flush", "writev -P 5 8M 4k 8k 64k", "readv -P 5 8M 64k 8k 4k", "write -P 6 9000000 511",
		"read -P 6 9000000 511", "write -P 9 31M 1M", "flush", "read -P 9 31M 1M",
	}
	args := []string{"-f", "raw", "-t", "none"}
	for _, c := range commands {
		args = append(args, "-c", c)
	}
	out := strings.ToLower(run(t, "", "qemu-io", append(args, d.uri)...))
	if strings.Contains(out, "fail") || strings.Contains(out, "error") {
		t.Errorf("qemu-io: %s", out)
	}
}

// fioDevice writes blocks with checksums and reads them again.
func fioDevice(t *testing.T, d *device) {
	for _, job := range [][]string{
		{"--rw=randwrite", "--bsrange=512-128k", "--iodepth=16"},
		{"--rw=write", "--bs=1M", "--iodepth=4"},
		{"--rw=randrw", "--bs=4k", "--iodepth=32", "--fsync=64"},
	} {
		args := []string{"--name=verify", "--ioengine=nbd", "--uri=" + d.uri, "--size=16M",
			"--verify=crc32c", "--verify_fatal=1", "--do_verify=1"}
		run(t, t.TempDir(), "fio", append(args, job...)...)
	}
}

// volumeIsStriped checks that every server holds a part.
func volumeIsStriped(t *testing.T, c *cluster) {
	t.Helper()
	var vols []struct {
		Name   string `json:"name"`
		Layout struct {
			Servers []uint32 `json:"servers"`
		} `json:"layout"`
	}
	must(t, json.Unmarshal([]byte(c.sluice(t, "volume", "ls", "--json")), &vols))
	if len(vols) != 1 || len(vols[0].Layout.Servers) != 4 {
		t.Fatalf("volume ls: %+v", vols)
	}
}
