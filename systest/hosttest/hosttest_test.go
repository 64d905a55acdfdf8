package hosttest

import (
	"context"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain is also the programs that run on hosts: one that answers, and one that asks.
func TestMain(m *testing.M) {
	switch os.Getenv("HOSTTEST_PROGRAM") {
	case "answer":
		l, err := net.Listen("tcp", ":7")
		if err != nil {
			panic(err)
		}
		for {
			if c, err := l.Accept(); err == nil {
				_, _ = c.Write([]byte("here"))
				c.Close()
			}
		}
	case "ask":
		c, err := net.DialTimeout("tcp", os.Args[1]+":7", time.Second)
		if err == nil {
			_ = c.SetDeadline(time.Now().Add(time.Second))
			_, err = io.ReadFull(c, make([]byte, 4))
		}
		if err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// reach tells whether one host gets an answer from another.
func reach(t *testing.T, from, to *Host) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	self, err := os.Executable()
	must(t, err)
	_, err = from.Run(ctx, "env", "HOSTTEST_PROGRAM=ask", self, to.Addr)
	return err == nil
}

// answers waits until a host answers: after a link is back that takes a moment.
func answers(t *testing.T, from, to *Host) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !reach(t, from, to); {
		if time.Now().After(end) {
			t.Fatalf("%s does not reach %s", from.Name, to.Name)
		}
	}
}

func TestHosts(t *testing.T) {
	b := New(t, "a", "b", "c")
	one, two, three := b.Hosts[0], b.Hosts[1], b.Hosts[2]
	self, err := os.Executable()
	must(t, err)
	for _, h := range b.Hosts {
		h.Start("env", "HOSTTEST_PROGRAM=answer", self)
	}
	answers(t, one, two)
	answers(t, two, three)

	b.Part(one, two)
	if reach(t, one, two) || reach(t, two, one) {
		t.Error("two that are kept apart reach each other")
	}
	answers(t, one, three)
	b.Meet(one, two)
	answers(t, one, two)

	three.Cut()
	if reach(t, one, three) {
		t.Error("a host without a cable is reached")
	}
	answers(t, one, two)
	three.Mend()
	answers(t, one, three)

	// Each has its own folder, and nobody else's.
	must(t, os.WriteFile(one.Path("mine"), []byte("x"), 0o644))
	if out, err := one.Run(t.Context(), "cat", one.Path("mine")); err != nil || out != "x" {
		t.Errorf("%q %v", out, err)
	}
	if _, err := two.Run(t.Context(), "cat", one.Path("mine")); err == nil {
		t.Error("a host sees the folder of another")
	}
	if got, err := os.ReadFile(one.Outside(one.Path("mine"))); err != nil || string(got) != "x" {
		t.Errorf("%q %v", got, err)
	}
}

func TestProcesses(t *testing.T) {
	b := New(t, "a")
	p := b.Hosts[0].Start("sh", "-c",
		"trap 'echo bye; exit 0' TERM; pwd; while :; do sleep 0.05; done")
	for end := time.Now().Add(time.Minute); !strings.Contains(p.Said(), b.Hosts[0].Dir); {
		if time.Now().After(end) {
			t.Fatalf("it runs elsewhere: %q", p.Said())
		}
		time.Sleep(10 * time.Millisecond)
	}
	p.End(time.Minute)
	if !strings.Contains(p.Said(), "bye") {
		t.Errorf("it did not end in order: %q", p.Said())
	}
	p = b.Hosts[0].Start("sleep", "60")
	p.Signal(syscall.SIGKILL)
	<-p.Done()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
