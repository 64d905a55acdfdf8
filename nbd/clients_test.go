package nbd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/nbd"
	"github.com/sluice-storage/sluice/nbd/diskexport"
	"github.com/sluice-storage/sluice/nbd/memexport"
)

// The tests here let clients that we did not write talk to a server in this process. They fail
// where a client is not installed, unless SLUICE_SKIP_CLIENTS is set.

const diskBytes = 32 << 20

// site is a running server with its exports and a way to reach them.
type site struct {
	t   *testing.T
	srv *nbd.Server
	uri func(export string) string
	dir string
}

// eachSite runs a test on a unix socket and on TCP, for an export in memory and one in a file.
func eachSite(t *testing.T, binary string, test func(t *testing.T, s *site, uri string)) {
	if _, err := exec.LookPath(binary); err != nil {
		if os.Getenv("SLUICE_SKIP_CLIENTS") != "" {
			t.Skipf("%s is not installed and SLUICE_SKIP_CLIENTS is set", binary)
		}
		t.Fatalf("%s is not installed: run make deps, or set SLUICE_SKIP_CLIENTS=1", binary)
	}
	for _, network := range []string{"unix", "tcp"} {
		for _, export := range append([]string{"memory"}, diskexport.Modes()...) {
			t.Run(network+" "+export, func(t *testing.T) {
				s := newSite(t, network)
				test(t, s, s.uri(export))
			})
		}
	}
}

func newSite(t *testing.T, network string) *site {
	dir, err := os.MkdirTemp("", "nbd") // short enough for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	disk := filepath.Join(dir, "disk")
	if err := os.WriteFile(disk, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(disk, diskBytes); err != nil {
		t.Fatal(err)
	}
	host := diskexport.New(diskexport.Options{})
	t.Cleanup(func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	})
	entries := []nbd.Entry{
		{Name: "memory", Keep: true, Open: func(context.Context) (nbd.Export, error) {
			return memexport.New(diskBytes)
		}}}
	for i, mode := range diskexport.Modes() {
		spec := diskexport.Spec{Paths: []string{disk}, Mode: diskexport.Mode(i)}
		entries = append(entries, nbd.Entry{Name: mode, Description: "a disk",
			Open: func(ctx context.Context) (nbd.Export, error) { return host.Open(ctx, spec) }})
	}
	srv, err := nbd.NewServer(nbd.Config{DrainGrace: time.Millisecond}, entries...)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, srv: srv, dir: dir}
	s.listen(network)
	return s
}

func (s *site) listen(network string) {
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(s.dir, "socket")
	}
	ln, err := net.Listen(network, address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.uri = func(export string) string {
		if network == "unix" {
			return fmt.Sprintf("nbd+unix:///%s?socket=%s", export, address)
		}
		return fmt.Sprintf("nbd://%s/%s", ln.Addr(), export)
	}
	served := make(chan error)
	go func() { served <- s.srv.Serve(ln) }()
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.srv.Shutdown(ctx); err != nil {
			s.t.Errorf("Shutdown: %v", err)
		}
		if err := <-served; err != nil {
			s.t.Errorf("Serve: %v", err)
		}
		if st := s.srv.Stats(); st.Panics != 0 || st.Errors != 0 || st.MemoryBytes != 0 {
			s.t.Errorf("%+v", st)
		}
	})
}

// run runs a client in the site's directory and returns what it prints.
func (s *site) run(name string, args ...string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = s.dir
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		s.t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, &out, &errOut)
	}
	return out.String()
}

// image writes a file with data and holes in it, as large as the exports.
func (s *site) image() string {
	path := filepath.Join(s.dir, "image")
	f, err := os.Create(path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	seed := rand.Uint64()
	s.t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 12 {
		p := make([]byte, 1+rng.IntN(2<<20))
		for i := range p {
			p[i] = byte(rng.Uint32())
		}
		if _, err := f.WriteAt(p, rng.Int64N(diskBytes-int64(len(p)))); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := f.Truncate(diskBytes); err != nil {
		s.t.Fatal(err)
	}
	return path
}

func (s *site) sameFiles(a, b string) {
	s.t.Helper()
	pa, err := os.ReadFile(a)
	if err != nil {
		s.t.Fatal(err)
	}
	pb, err := os.ReadFile(b)
	if err != nil {
		s.t.Fatal(err)
	}
	if !bytes.Equal(pa, pb) {
		s.t.Errorf("%s and %s differ", a, b)
	}
}

func TestNbdinfo(t *testing.T) {
	eachSite(t, "nbdinfo", func(t *testing.T, s *site, uri string) {
		var info struct {
			Protocol   string
			Structured bool
			Exports    []map[string]any
		}
		if err := json.Unmarshal([]byte(s.run("nbdinfo", "--json", uri)), &info); err != nil {
			t.Fatal(err)
		}
		if info.Protocol != "newstyle-fixed" || !info.Structured || len(info.Exports) != 1 {
			t.Fatalf("%+v", info)
		}
		e := info.Exports[0]
		for _, can := range strings.Fields("cache df fast_zero flush fua multi_conn trim zero") {
			if e["can_"+can] != true {
				t.Errorf("can_%s is %v", can, e["can_"+can])
			}
		}
		if e["export-size"] != float64(diskBytes) || e["is_read_only"] != false ||
			e["block_size_maximum"] != float64(32<<20) ||
			fmt.Sprint(e["contexts"]) != "[base:allocation]" {
			t.Errorf("%v", e)
		}
		list := s.run("nbdinfo", "--list", "--json", uri)
		if !strings.Contains(list, `"memory"`) || !strings.Contains(list, `"a disk"`) {
			t.Errorf("list %s", list)
		}
	})
}

func TestNbdinfoMap(t *testing.T) {
	eachSite(t, "nbdinfo", func(t *testing.T, s *site, uri string) {
		s.run("qemu-io", "-f", "raw", "-c", "write -P 1 1M 2M", "-c", "write -P 2 20M 64k", uri)
		type extent struct {
			Offset, Length int64
			Type           int
		}
		var got []extent
		out := s.run("nbdinfo", "--map", "--json", uri)
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		want := []extent{
			{0, 1 << 20, 3}, {1 << 20, 2 << 20, 0}, {3 << 20, 17 << 20, 3},
			{20 << 20, 64 << 10, 0}, {20<<20 + 64<<10, 12<<20 - 64<<10, 3},
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("map %v\nwant %v", got, want)
		}
	})
}

func TestNbdcopyBothWays(t *testing.T) {
	eachSite(t, "nbdcopy", func(_ *testing.T, s *site, uri string) {
		image, back := s.image(), filepath.Join(s.dir, "back")
		s.run("nbdcopy", "--flush", image, uri)
		s.run("nbdcopy", uri, back)
		s.sameFiles(image, back)
		s.run("nbdcopy", "--connections=1", "--requests=64", "--request-size=4096", uri, back)
		s.sameFiles(image, back)
		s.run("nbdcopy", "--synchronous", uri, back)
		s.sameFiles(image, back)
		// Between the two exports of one server.
		other := s.uri("memory")
		if other == uri {
			other = s.uri("page")
		}
		s.run("nbdcopy", uri, other)
		s.run("nbdcopy", other, back)
		s.sameFiles(image, back)
	})
}

func TestQemuImg(t *testing.T) {
	eachSite(t, "qemu-img", func(_ *testing.T, s *site, uri string) {
		image, back := s.image(), filepath.Join(s.dir, "back")
		s.run("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", image, uri)
		s.run("qemu-img", "compare", "-f", "raw", "-F", "raw", image, uri)
		s.run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", uri, back)
		s.run("qemu-img", "compare", "-f", "qcow2", "-F", "raw", back, uri)
		s.run("qemu-img", "convert", "-W", "-m", "16", "-f", "raw", "-O", "raw", uri, back)
		s.sameFiles(image, back)
		s.run("qemu-img", "bench", "-f", "raw", "-c", "2000", "-d", "32", "-s", "4096", uri)
		s.run("qemu-img", "bench", "-w", "--flush-interval=100", "-f", "raw", "-c", "1000",
			"-d", "16", uri)
	})
}

// TestHalfCachedDisk: the kernel has the first mebibyte of the disk in memory and nothing else. A
// read that ends behind it is answered by a piece of the file and by one that is read first. The
// client sends nothing more before it has both.
func TestHalfCachedDisk(t *testing.T) {
	eachSite(t, "qemu-io", func(t *testing.T, s *site, uri string) {
		s.run("qemu-io", "-f", "raw", "-c", "write -P 7 0 4M", "-c", "flush", uri)
		disk, err := os.Open(filepath.Join(s.dir, "disk"))
		if err != nil {
			t.Fatal(err)
		}
		defer disk.Close()
		fd := int(disk.Fd())
		for _, err := range []error{
			disk.Sync(),
			unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED),
			unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM), // no reading ahead
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := disk.ReadAt(make([]byte, 1<<20), 0); err != nil {
			t.Fatal(err)
		}
		out := s.run("qemu-io", "-f", "raw", "-c", "read -P 7 0 1088k", uri)
		if strings.Contains(strings.ToLower(out), "fail") {
			t.Errorf("%s", out)
		}
	})
}

func TestQemuIO(t *testing.T) {
	eachSite(t, "qemu-io", func(t *testing.T, s *site, uri string) {
		commands := []string{
			"write -P 1 0 1M", "write -f -P 2 1M 64k", "aio_write -P 3 2M 1M", "aio_flush",
			"read -P 1 0 1M", "read -P 2 1M 64k", "read -P 3 2M 1M", "read -P 0 3M 1M",
			"write -z 512k 64k", "read -P 0 512k 64k", "write -z -u 2M 256k", "read -P 0 2M 256k",
			"write -z -f 0 128k", "read -P 0 0 128k", "read -P 1 128k 384k",
			"discard 2M 1M", "flush", "write -P 9 31M 1M", "flush", "read -P 9 31M 1M",
			"writev -P 5 5M 4k 8k 64k", "readv -P 5 5M 64k 8k 4k",
			"write -P 6 4097 511", "read -P 6 4097 511",
		}
		args := []string{"-f", "raw", "-t", "none"}
		for _, c := range commands {
			args = append(args, "-c", c)
		}
		out := s.run("qemu-io", append(args, uri)...)
		if strings.Contains(strings.ToLower(out), "fail") || strings.Contains(out, "error") {
			t.Errorf("%s", out)
		}
		st := s.srv.Stats()
		if st.Flushes == 0 || st.Zeroes < 3 || st.Trims == 0 || st.Writes == 0 {
			t.Errorf("not everything arrived: %+v", st)
		}
	})
}

func TestFioVerify(t *testing.T) {
	eachSite(t, "fio", func(_ *testing.T, s *site, uri string) {
		for _, job := range [][]string{
			{"--rw=randwrite", "--bsrange=512-128k", "--iodepth=16"},
			{"--rw=write", "--bs=1M", "--iodepth=4"},
			{"--rw=randrw", "--bs=4k", "--iodepth=32", "--fsync=64"},
		} {
			args := []string{"--name=verify", "--ioengine=nbd", "--uri=" + uri, "--size=16M",
				"--verify=crc32c", "--verify_fatal=1", "--output=fio.out"}
			s.run("fio", append(args, job...)...)
		}
	})
}
