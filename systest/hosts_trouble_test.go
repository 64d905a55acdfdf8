package systest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/systest/hosttest"
)

// writerEnv makes a process of this test binary one that writes files into a directory.
const writerEnv = "SLUICE_SYSTEST_WRITER"

// writerBytes is how long each file is.
const writerBytes = 600 << 10

// writeFiles writes files, syncs them, reads back older ones, and says how many there are, until
// standard input ends. Then it compares all of them. It is a process of its own: a test that has a
// file open on a mount cannot start programs while the mount waits, because the kernel closes the
// file in each of them.
func writeFiles(dir string) error {
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stop)
	}()
	name := func(i int) string { return filepath.Join(dir, strconv.Itoa(i)) }
	check := func(i int) error {
		got, err := os.ReadFile(name(i))
		if err == nil && !bytes.Equal(got, record(1, i, writerBytes)) {
			err = fmt.Errorf("file %d is not what was written", i)
		}
		return err
	}
	n, longest := 0, time.Duration(0)
	for ; ; n++ {
		select {
		case <-stop:
			for i := range n {
				if err := check(i); err != nil {
					return err
				}
			}
			fmt.Printf("compared %d, the longest took %v\n", n, longest.Round(time.Millisecond))
			return nil
		default:
		}
		began := time.Now()
		if err := writeFile(name(n), record(1, n, writerBytes)); err != nil {
			return err
		}
		if err := check(n / 2); err != nil {
			return err
		}
		took := time.Since(began)
		longest = max(longest, took)
		fmt.Println("written", n+1)
		time.Sleep(min(2*took, 100*time.Millisecond)) // others are tested beside this
	}
}

func writeFile(name string, data []byte) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// writer is such a process on a client.
type writer struct {
	t    *testing.T
	name string
	in   io.Closer
	over chan struct{} // closed when it has ended

	mu      sync.Mutex
	written int
	said    string // the last line
}

func (b *bed) startWriter(h *hosttest.Host, folder string) *writer {
	b.t.Helper()
	self, err := os.Executable()
	must(b.t, err)
	dir := filepath.Join(b.mnt(h), folder)
	_, err = h.Run(b.t.Context(), "mkdir", dir)
	must(b.t, err)
	cmd := h.Command(context.Background(), "env", writerEnv+"="+dir, self)
	w := &writer{t: b.t, name: h.Name, over: make(chan struct{})}
	w.in, err = cmd.StdinPipe()
	must(b.t, err)
	out, err := cmd.StdoutPipe()
	must(b.t, err)
	cmd.Stderr = cmd.Stdout
	must(b.t, cmd.Start())
	go func() {
		defer close(w.over)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			w.mu.Lock()
			w.said = lines.Text()
			if n, err := strconv.Atoi(strings.TrimPrefix(w.said, "written ")); err == nil {
				w.written = n
			}
			w.mu.Unlock()
		}
		_ = cmd.Wait() // what it said tells more
	}()
	b.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-w.over
	})
	return w
}

func (w *writer) now() (written int, said string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.written, w.said
}

func (w *writer) alive() bool {
	select {
	case <-w.over:
		return false
	default:
		return true
	}
}

// progress waits until some more files are written.
func (w *writer) progress(more int) {
	w.t.Helper()
	from, _ := w.now()
	for end := time.Now().Add(readyLimit); ; time.Sleep(20 * time.Millisecond) {
		n, said := w.now()
		switch {
		case n >= from+more:
			return
		case !w.alive():
			w.t.Fatalf("%s: %s", w.name, said)
		case time.Now().After(end):
			w.t.Fatalf("%s: %d files were written, %d before", w.name, n, from)
		}
	}
}

// end stops it, and wants all that was synced to be there.
func (w *writer) end() {
	w.t.Helper()
	_ = w.in.Close()
	<-w.over
	_, said := w.now()
	if !strings.HasPrefix(said, "compared ") {
		w.t.Errorf("%s: %s", w.name, said)
	}
	w.t.Log(w.name, said)
}

// pids are the processes of a host's folder.
func (b *bed) pids(h *hosttest.Host) (list []int) {
	out, _ := exec.Command("pgrep", "-f", "--", "(--dir|--config) "+b.folder(h)).Output()
	for _, word := range strings.Fields(string(out)) {
		pid, err := strconv.Atoi(word)
		must(b.t, err)
		list = append(list, pid)
	}
	return list
}

// kill ends all that runs on a host, as if its power had gone.
func (b *bed) kill(h *hosttest.Host) {
	b.t.Helper()
	list := b.pids(h)
	if len(list) == 0 {
		b.t.Fatalf("nothing runs on %s", h.Name)
	}
	for _, pid := range list {
		_ = syscall.Kill(pid, syscall.SIGKILL) // one may have ended with another
	}
	for _, pid := range list {
		awaitDeath(b.t, pid) // they hold locks until then
	}
}

// serve starts what a host's file says.
func (b *bed) serve(h *hosttest.Host) {
	b.t.Helper()
	_, err := b.sluice(h, "serve", "-d", "--config", filepath.Join(b.folder(h), "sluice.toml"))
	must(b.t, err)
}

// TestHostsInTrouble: a client writes while hosts are cut off, kept apart from each other, and
// killed. It waits, goes on, and nothing that was synced is lost. Keys are changed meanwhile.
func TestHostsInTrouble(t *testing.T) {
	b := newBed(t)
	b.setUp()
	h1, h2, h3, c1 := b.host("h1"), b.host("h2"), b.host("h3"), b.host("c1")
	l := b.startWriter(c1, "load")
	l.progress(3)
	const gap = 3 * time.Second
	for _, one := range []struct {
		what     string
		do, undo func()
	}{
		{"the cable of an I/O server's host is out", h2.Cut, h2.Mend},
		{"the client does not reach a host", func() { b.Part(c1, h3) }, func() { b.Meet(c1, h3) }},
		{"a host does not reach the metadata service", func() { b.Part(h1, h3) },
			func() { b.Meet(h1, h3) }},
		{"the metadata host's cable is out", h1.Cut, h1.Mend},
		{"a host is killed and started", func() { b.kill(h3) }, func() { b.serve(h3) }},
		{"the metadata host is killed and started", func() { b.kill(h1) }, func() { b.serve(h1) }},
		{"the secret is changed", func() {
			b.typed(h1, "sluice key rotate secret --dir /var/lib/sluice")
		}, func() {}},
	} {
		t.Log(one.what)
		one.do()
		time.Sleep(gap)
		one.undo()
		l.progress(3)
	}
	l.end()
}

// TestHostsRefuse: who has no certificate of the cluster, or one that was removed, gets nothing,
// and nobody else notices.
func TestHostsRefuse(t *testing.T) {
	b := newBed(t, "c2")
	b.setUp()
	h1, h2, c1, c2 := b.host("h1"), b.host("h2"), b.host("c1"), b.host("c2")
	must(t, os.MkdirAll(c2.Outside(b.mnt(c2)), 0o755))
	b.typed(h1, "sluice token create --client c2 --squash none --dir /var/lib/sluice")
	used := b.token
	b.typed(c2, "sluice join 10.1.0.1:9401 TOKEN --mount /mnt/lab")
	l := b.startWriter(c1, "load")
	other := b.startWriter(c2, "load2")
	l.progress(2)
	other.progress(2)

	b.refused(c2, "used up", "join", h1.Addr+":9401", used, "--credential", c2.Path("again.json"))
	b.refused(h2, "no credential", "ls", "--url", "sluice://"+h1.Addr+":9400", "/")
	b.strangers(h2)
	b.strangers(h1)

	b.typed(h1, "sluice client rm c2 --dir /var/lib/sluice")
	for end := time.Now().Add(2 * time.Minute); other.alive(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a client that was removed goes on")
		}
	}
	b.refused(c2, "", "ls", "--url", "sluice://"+h1.Addr+":9400", "/")
	l.progress(3)
	l.end()
}

// refused runs a command that must fail, and say why.
func (b *bed) refused(h *hosttest.Host, why string, args ...string) {
	b.t.Helper()
	out, err := b.sluice(h, args...)
	if err == nil || !strings.Contains(out+err.Error(), why) {
		b.t.Errorf("%v on %s: %s %v, want %q", args, h.Name, out, err, why)
	}
}

// strangers sends nonsense to every port of a host that listens beyond loopback.
func (b *bed) strangers(h *hosttest.Host) {
	b.t.Helper()
	ctx := b.t.Context()
	out, err := h.Run(ctx, "ss", "-Hltn")
	must(b.t, err)
	var ports []string
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) > 3 && strings.HasPrefix(fields[3], h.Addr+":") {
			ports = append(ports, fields[3])
		}
	}
	if len(ports) == 0 {
		b.t.Fatalf("nothing listens on %s: %s", h.Name, out)
	}
	for _, addr := range ports {
		text := filepath.Join(h.Outside(h.Dir), "noise")
		noise := make([]byte, 10_000)
		_, _ = io.ReadFull(rand.Reader, noise)
		must(b.t, os.WriteFile(text, noise, 0o600))
		host, port, err := net.SplitHostPort(addr)
		must(b.t, err)
		script := fmt.Sprintf("timeout 20 bash -c 'exec 3<>/dev/tcp/%s/%s; cat %s >&3; cat <&3' | "+
			"head -c 100000 | wc -c", host, port, h.Path("noise"))
		answer, err := h.Run(ctx, "bash", "-c", script)
		if n, _ := strconv.Atoi(strings.TrimSpace(answer)); err != nil || n > 1000 {
			b.t.Errorf("%s answers nonsense with %d bytes, %v", addr, n, err)
		}
	}
}
