package fabrictest_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/fabrictest"
	"github.com/sluice-storage/sluice/fabric/tcp"
)

// serveEnv makes this binary the serving process of TestTwoProcesses.
const serveEnv = "FABRICTEST_SERVE"

func openTCP(t *testing.T) fabric.Domain {
	t.Helper()
	d, err := tcp.Open(tcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestTwoProcesses(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run", "^TestServing$")
	cmd.Env = append(os.Environ(), serveEnv+"=1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	addr, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	fabrictest.Visit(t, fabrictest.Meeting{Domain: openTCP(t), Addr: strings.TrimSpace(addr)})
	if err := stdin.Close(); err != nil { // it serves until then
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(lines)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, rest)
	}
}

// TestServing is the serving process: it prints its address and serves until its input ends.
func TestServing(t *testing.T) {
	if os.Getenv(serveEnv) == "" {
		return // an ordinary test run
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	m := fabrictest.Meeting{Domain: openTCP(t), Addr: "127.0.0.1:0"}
	if err := fabrictest.Serve(ctx, m, func(addr string) { fmt.Println(addr) }); err != nil {
		t.Fatal(err)
	}
}
