package vmtest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/vmtest/frame"
)

// guestOf makes a guest without a machine; the test plays its agent at the other end.
func guestOf(t *testing.T) (*Guest, net.Conn, *frame.Reader) {
	t.Helper()
	here, there := net.Pipe()
	_ = there.SetDeadline(time.Now().Add(time.Minute))
	g := &Guest{name: "nobody", log: &console{}, agent: newChannel(here)}
	t.Cleanup(func() {
		there.Close()
		g.agent.close()
	})
	return g, there, frame.NewReader(there)
}

// answer plays an agent for one command.
func answer(conn io.Writer, r *frame.Reader, frames ...frame.Frame) {
	f, err := r.Next()
	if err != nil {
		return
	}
	for _, out := range frames {
		out.ID = f.ID
		_, _ = conn.Write(frame.Append(nil, out))
	}
}

func TestOutputIsBounded(t *testing.T) {
	g, conn, r := guestOf(t)
	piece := []byte(strings.Repeat("x", 700))
	go answer(conn, r,
		frame.Frame{Kind: frame.Stdout, Payload: piece},
		frame.Frame{Kind: frame.Stdout, Payload: piece},
		frame.Frame{Kind: frame.Stderr, Payload: []byte("small")},
		frame.Frame{Kind: frame.Exit, Payload: []byte(`{"code":3}`)})
	res, err := g.Exec(t.Context(), Command{Script: "x", OutputMax: 1000})
	if err != nil || len(res.Stdout) != 1000 || !res.Truncated || res.Stderr != "small" ||
		res.Code != 3 {
		t.Fatalf("%d bytes, %+v, %v", len(res.Stdout), res.Code, err)
	}
	if err := res.Err(); err == nil || !strings.Contains(err.Error(), "exit code 3") {
		t.Fatal(err)
	}
}

func TestAGuestThatBreaksOffFailsItsCommands(t *testing.T) {
	for name, last := range map[string]frame.Frame{
		"gone":            {},
		"a broken status": {Kind: frame.Exit, Payload: []byte("}")},
		"a late hello":    {Kind: frame.Hello, Payload: []byte(`{"version":77}`)},
		"a host's frame":  {Kind: frame.Kill},
	} {
		t.Run(name, func(t *testing.T) {
			g, conn, r := guestOf(t)
			bystander, err := g.agent.begin(sinks{})
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				answer(conn, r, frame.Frame{Kind: frame.Stdout, Payload: []byte("so far")}, last)
				conn.Close()
			}()
			res, err := g.Run(t.Context(), "x")
			if !errors.Is(err, errs.Disconnected) && !errors.Is(err, errs.Protocol) {
				t.Fatal(err)
			}
			if res.Stdout != "so far" {
				t.Fatalf("lost what was printed: %q", res.Stdout)
			}
			<-bystander.done
			if !errors.Is(bystander.err, errs.Disconnected) {
				t.Fatal(bystander.err)
			}
			if _, err := g.Run(t.Context(), "x"); !errors.Is(err, errs.Disconnected) {
				t.Fatalf("afterwards: %v", err)
			}
		})
	}
}

func TestMonitor(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	m := newMonitor(here)
	defer m.close()
	go func() {
		r := bufio.NewReader(there)
		for _, reply := range []string{
			`{"QMP":{}} {"return":{}}`,
			`{"event":"LINK"} {"return":{}}`,
			`{"error":{"class":"DeviceNotFound","desc":"no wire9"}}`,
			`{"return":`,
		} {
			if _, err := r.ReadString('\n'); err != nil {
				return
			}
			_, _ = io.WriteString(there, reply+"\n")
		}
		there.Close()
	}()
	if err := m.hello(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.setLink(t.Context(), "wire0", false); err != nil {
		t.Fatal(err)
	}
	if err := m.setLink(t.Context(), "wire9", false); !errors.Is(err, errs.Invalid) ||
		!strings.Contains(err.Error(), "no wire9") {
		t.Fatal(err)
	}
	for range 2 {
		if err := m.setLink(t.Context(), "wire0", true); !errors.Is(err, errs.Disconnected) {
			t.Fatalf("half an answer: %v", err)
		}
	}
}
