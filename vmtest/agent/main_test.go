package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-storage/sluice/vmtest/frame"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is the other end of an agent that serves in this process.
type host struct {
	t    *testing.T
	conn net.Conn
	r    *frame.Reader
}

func startAgent(t *testing.T) *host {
	t.Helper()
	here, there := net.Pipe()
	ended := make(chan error, 1)
	go func() {
		defer there.Close()
		ended <- serve(there, "6.1")
	}()
	_ = here.SetDeadline(time.Now().Add(time.Minute))
	t.Cleanup(func() {
		here.Close()
		<-ended
	})
	h := &host{t: t, conn: here, r: frame.NewReader(here)}
	var g frame.Greeting
	if f := h.next(); f.Kind != frame.Hello || f.Body(&g) != nil ||
		g != (frame.Greeting{Version: frame.Version, Kernel: "6.1"}) {
		t.Fatalf("hello: %+v %+v", f, g)
	}
	return h
}

func (h *host) next() frame.Frame {
	h.t.Helper()
	f, err := h.r.Next()
	if err != nil {
		h.t.Fatal(err)
	}
	return f
}

func (h *host) send(b []byte, err error) {
	h.t.Helper()
	if err == nil {
		_, err = h.conn.Write(b)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) run(id uint32, script string) {
	h.t.Helper()
	c := frame.Command{Script: script, Env: os.Environ(), Dir: "/"}
	h.send(frame.AppendJSON(nil, frame.Run, id, c))
}

// outcome gathers the frames of commands until n of them have ended.
func (h *host) outcome(n int) map[uint32]string {
	h.t.Helper()
	text := map[uint32]*strings.Builder{}
	all := map[uint32]string{}
	for len(all) < n {
		f := h.next()
		if text[f.ID] == nil {
			text[f.ID] = &strings.Builder{}
		}
		switch f.Kind {
		case frame.Stdout, frame.Stderr:
			fmt.Fprintf(text[f.ID], "%d:%s", f.Kind-frame.Stdout, f.Payload)
		case frame.Exit:
			var s frame.Status
			if err := f.Body(&s); err != nil {
				h.t.Fatal(err)
			}
			all[f.ID] = fmt.Sprintf("%s=%d", text[f.ID], s.Code)
		}
	}
	return all
}

func TestCommands(t *testing.T) {
	h := startAgent(t)
	table := []struct{ script, want string }{
		{"true", "=0"},
		{"exit 42", "=42"},
		{"echo -n out", "0:out=0"},
		{"echo -n err >&2", "1:err=0"},
		{"kill -TERM $$", "=143"},
		{"pwd", "0:/\n=0"},
		{"cat", "=0"}, // there is nothing to read
		{"no-such-program 2>/dev/null", "=127"},
		{"setsid sleep 2 & exit 5", "=5"}, // holds the output, and is not waited for
	}
	for i, row := range table {
		h.run(uint32(i), row.script)
		if got := h.outcome(1)[uint32(i)]; got != row.want {
			t.Errorf("%s: %q, want %q", row.script, got, row.want)
		}
	}
}

func TestLargeOutputComesInPieces(t *testing.T) {
	h := startAgent(t)
	h.run(1, "head -c 1000000 /dev/zero")
	total := 0
	for {
		f := h.next()
		if f.Kind == frame.Exit {
			break
		}
		if len(f.Payload) > frame.PieceBytes {
			t.Fatalf("a piece of %d bytes", len(f.Payload))
		}
		total += len(f.Payload)
	}
	if total != 1000000 {
		t.Fatalf("%d bytes came", total)
	}
}

func TestCommandsRunAtOnce(t *testing.T) {
	h := startAgent(t)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	h.run(1, "read x < "+fifo+"; exit $x") // ends only if the second one runs
	h.run(2, "echo 9 > "+fifo)
	if got := h.outcome(2); got[1] != "=9" || got[2] != "=0" {
		t.Fatalf("got %v", got)
	}
}

func TestKillEndsTheWholeGroup(t *testing.T) {
	h := startAgent(t)
	pid := filepath.Join(t.TempDir(), "pid")
	h.run(1, "sleep 1000 & echo $! > "+pid+".new; mv "+pid+".new "+pid+"; wait")
	var child int
	waitFor(t, "the child to run", func() bool {
		text, err := os.ReadFile(pid)
		if err == nil {
			_, err = fmt.Sscan(string(text), &child)
		}
		return err == nil
	})
	h.send(frame.Append(nil, frame.Frame{Kind: frame.Kill, ID: 1}), nil)
	if got := h.outcome(1)[1]; got != "=137" {
		t.Fatalf("got %q", got)
	}
	waitFor(t, "the child to end", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
	h.send(frame.Append(nil, frame.Frame{Kind: frame.Kill, ID: 1}), nil) // does nothing
	h.send(frame.Append(nil, frame.Frame{Kind: frame.Sync, ID: 2}), nil)
	if got := h.outcome(1)[2]; got != "=0" {
		t.Fatalf("sync: %q", got)
	}
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestNonsenseEndsTheConversation(t *testing.T) {
	for name, bytes := range map[string][]byte{
		"not for agents": frame.Append(nil, frame.Frame{Kind: frame.Stdout}),
		"no command":     frame.Append(nil, frame.Frame{Kind: frame.Run, Payload: []byte("[")}),
		"no frame":       []byte("GET / HTTP/1.1\r\n\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			h := startAgent(t)
			_, _ = h.conn.Write(bytes) // a pipe may be closed before all is taken
			if _, err := h.r.Next(); err == nil {
				t.Fatal("the agent goes on")
			}
		})
	}
}

func TestFindPort(t *testing.T) {
	class := t.TempDir()
	for port, name := range map[string]string{"vport0p1": "other", "vport3p7": portName} {
		if err := os.Mkdir(filepath.Join(class, port), 0o700); err != nil {
			t.Fatal(err)
		}
		text := []byte(name + "\n")
		if err := os.WriteFile(filepath.Join(class, port, "name"), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := findPort(class, portName); got != "/dev/vport3p7" || err != nil {
		t.Fatalf("%s, %v", got, err)
	}
	if _, err := findPort(class, "nobody"); err == nil {
		t.Fatal("found a port that is not there")
	}
}
