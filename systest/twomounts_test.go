package systest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startMount mounts the cluster once more, by a process of its own, until the end of the test.
func (c *cluster) startMount(t *testing.T, flags ...string) (dir string) {
	t.Helper()
	dir, _ = c.mountProcess(t, flags...)
	return dir
}

// mountProcess is startMount that tells which process serves it.
func (c *cluster) mountProcess(t *testing.T, flags ...string) (dir string, pid int) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "mnt")
	var log bytes.Buffer
	args := append([]string{"mount", c.url, dir}, append(c.opts.args(), flags...)...)
	cmd := exec.Command(c.bin, args...)
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("sluice mount said:\n%s", &log)
		}
	})
	c.await(t, "the second mount", func() bool { return mounted(dir) })
	c.await(t, "the process that serves it", func() bool { return serverOf(cmd.Process.Pid) != 0 })
	return dir, serverOf(cmd.Process.Pid)
}

// twoMounts is one file seen through two mounts.
func twoMounts(t *testing.T, name string) (a, b string) {
	t.Helper()
	c := startCluster(t, clusterOptions{iods: 2, mount: true})
	return filepath.Join(c.mnt, name), filepath.Join(c.startMount(t), name)
}

// appendTo appends by one write and closes the file.
func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	must(t, err)
	_, err = f.WriteString(text)
	must(t, err)
	must(t, f.Close())
}

// TestTwoMountsAppendInTurn: a mount has looked at the file, another one appends and closes it, and
// then the first one appends, with a length in mind that is wrong by now.
func TestTwoMountsAppendInTurn(t *testing.T) {
	a, b := twoMounts(t, "log")
	want := "begin\n"
	appendTo(t, a, want)
	for i := range 50 {
		first, second := a, b
		if i%2 == 1 {
			first, second = b, a
		}
		time.Sleep(30 * time.Millisecond) // so that no file is open for writing, and stat is believed
		_, err := os.Stat(second)
		must(t, err)
		appendTo(t, first, fmt.Sprintln("first", i))
		if i%3 == 2 {
			run(t, "", "sh", "-c", fmt.Sprintf("echo second %d >> %s", i, second))
		} else {
			appendTo(t, second, fmt.Sprintln("second", i))
		}
		want += fmt.Sprintln("first", i) + fmt.Sprintln("second", i)
	}
	for _, path := range []string{a, b} {
		got, err := os.ReadFile(path)
		must(t, err)
		if string(got) != want {
			t.Fatalf("%s: %q\nwant %q", path, got, want)
		}
	}
}

// TestTwoMountsAppendAtOnce: every record is in the file once and whole, whoever writes meanwhile.
// Readers of both mounts see no other bytes than records and those that are on their way.
func TestTwoMountsAppendAtOnce(t *testing.T) {
	a, b := twoMounts(t, "log")
	const records, length = 100, 700
	record := func(who, i int) string {
		head := fmt.Sprintf("writer %d record %d ", who, i)
		return head + strings.Repeat(string(rune('a'+who)), length-len(head)-1) + "\n"
	}
	var wg sync.WaitGroup
	for who, path := range []string{a, b, a, b} {
		wg.Go(func() {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
			if err != nil {
				t.Error(err)
				return
			}
			for i := range records {
				if _, err := f.WriteString(record(who, i)); err != nil {
					t.Error(err)
				}
				if i%10 == 9 {
					if _, err := os.ReadFile(path); err != nil {
						t.Error(err)
					}
				}
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, path := range []string{a, b} {
		got, err := os.ReadFile(path)
		must(t, err)
		if len(got) != 4*records*length {
			t.Errorf("%s: %d bytes, want %d", path, len(got), 4*records*length)
		}
		for who := range 4 {
			for i := range records {
				if n := strings.Count(string(got), record(who, i)); n != 1 {
					t.Fatalf("%s: record %d of writer %d is there %d times", path, i, who, n)
				}
			}
		}
	}
}

// TestTwoMountsTruncate: one mount has read a file and believes its length; another one makes the
// file shorter, or other. Whoever opens it after that and reads, without asking for the length,
// sees the file as it is.
func TestTwoMountsTruncate(t *testing.T) {
	a, b := twoMounts(t, "f")
	old := bytes.Repeat([]byte("old!"), 3<<20/4)
	fresh := bytes.Repeat([]byte("new-data"), 1<<20/8+5)
	for i := range 20 {
		must(t, os.WriteFile(a, old, 0o644))
		if got, err := os.ReadFile(b); err != nil || !bytes.Equal(got, old) {
			t.Fatalf("round %d: %d bytes before the truncation, %v", i, len(got), err)
		}
		var held *os.File // keeps the inode open at the second mount
		if i%2 == 1 {
			var err error
			held, err = os.Open(b)
			must(t, err)
		}
		var want []byte
		switch i % 4 {
		case 0, 1:
			must(t, os.Truncate(a, 3))
			want = old[:3]
		case 2:
			must(t, os.WriteFile(a, []byte("xyz"), 0o644))
			want = []byte("xyz")
		case 3:
			must(t, os.WriteFile(a, fresh, 0o644))
			want = fresh
		}
		if got := readBlindly(t, b); !bytes.Equal(got, want) {
			t.Fatalf("round %d: %d bytes, want %d; %d zeroes at the end", i, len(got), len(want),
				len(got)-len(bytes.TrimRight(got, "\x00")))
		}
		if held != nil {
			got := readOn(t, int(held.Fd()))
			if !bytes.Equal(got, want) {
				t.Fatalf("round %d: %d bytes through the file that was open, want %d", i, len(got),
					len(want))
			}
			must(t, held.Close())
		}
	}
}

// readBlindly reads a whole file in large pieces and asks nothing else of it.
func readBlindly(t *testing.T, path string) []byte {
	t.Helper()
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	must(t, err)
	defer syscall.Close(fd)
	return readOn(t, fd)
}

func readOn(t *testing.T, fd int) (all []byte) {
	t.Helper()
	piece := make([]byte, 1<<20)
	for {
		n, err := syscall.Read(fd, piece)
		must(t, err)
		if n == 0 {
			return all
		}
		all = append(all, piece[:n]...)
	}
}

// TestTwoMountsTruncateAllTheTime: whoever opens and reads a file that another mount replaces again
// and again has no trouble, and sees the last content when that has ended.
func TestTwoMountsTruncateAllTheTime(t *testing.T) {
	a, b := twoMounts(t, "f")
	must(t, os.WriteFile(a, []byte("x"), 0o644))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			text := bytes.Repeat([]byte("x"), 1+i%3*700_000)
			if err := os.WriteFile(a, text, 0o644); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		if got := readBlindly(t, b); len(got) > 1_400_001 {
			t.Errorf("%d bytes", len(got))
		}
	}
	close(stop)
	wg.Wait()
	for range 3 {
		must(t, os.WriteFile(a, []byte("the end"), 0o644))
		if got := readBlindly(t, b); string(got) != "the end" {
			t.Fatalf("%d bytes: %.20q", len(got), got)
		}
	}
}
