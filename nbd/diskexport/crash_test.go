package diskexport

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-storage/sluice/unifier"
)

// The writer of TestKilledWriter runs in a process of its own, which is this test's binary.
const (
	crashPaths = "DISKEXPORT_CRASH_PATHS"
	crashMode  = "DISKEXPORT_CRASH_MODE"
)

func TestMain(m *testing.M) {
	if paths := os.Getenv(crashPaths); paths != "" {
		if err := writeForEver(strings.Split(paths, ":"), os.Getenv(crashMode)); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

const (
	crashBytes = 3 << 20 // what a set of newSet holds
	crashBlock = 5000    // no multiple of any block
)

// crashData is what the n-th write writes.
func crashData(n int) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("%09d.", n)), crashBlock/10)
}

// writeForEver writes one place after the other, round and round, and says what is durable: "u N"
// after the N-th write with FUA, "f N" after a flush that covers all writes up to the N-th, and
// "w N" before the N-th begins.
func writeForEver(paths []string, mode string) error {
	ctx := context.Background()
	m, err := ParseMode(mode)
	if err != nil {
		return err
	}
	h := New(Options{Cache: unifier.Config{MemoryBytes: 8 << 20}})
	e, err := h.Open(ctx, Spec{Paths: paths, Mode: m})
	if err != nil {
		return err
	}
	for n := 1; ; n++ {
		fmt.Println("w", n)
		off := int64(n) * crashBlock % (crashBytes - crashBlock)
		fua := rand.IntN(20) == 0
		if err := e.WriteAt(ctx, crashData(n), off, fua); err != nil {
			return err
		}
		if fua {
			fmt.Println("u", n)
		}
		if rand.IntN(20) == 0 {
			if err := e.Flush(ctx); err != nil {
				return err
			}
			fmt.Println("f", n)
		}
	}
}

// TestKilledWriter kills the process that writes, at any moment, and looks for all that was
// durable: a byte that a flush or FUA covered is there, unless a later write has begun to replace
// it.
func TestKilledWriter(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Skip(err)
	}
	eachMode(t, func(t *testing.T, m Mode) {
		for round := range 4 {
			paths := []string{fresh(t, crashBytes)}
			if round%2 == 1 {
				s := newSet(t, 3, 16<<10)
				h := newHost(t)
				open(t, h, s).Close()
				paths = s.Paths
			}
			cmd := exec.Command(exe)
			cmd.Env = append(os.Environ(), crashPaths+"="+strings.Join(paths, ":"),
				crashMode+"="+m.String())
			durable, began := killAfter(t, cmd, 100+rand.IntN(400))
			checkCrash(t, paths, m, durable, began)
		}
	})
}

// killAfter runs the writer until it has said so much, and returns which writes are durable and
// which was the last to begin.
func killAfter(t *testing.T, cmd *exec.Cmd, lines int) (durable map[int]bool, began int) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	durable = map[int]bool{}
	flushed := 0
	said := bufio.NewScanner(out)
	for k := 0; said.Scan(); k++ { // what is in the pipe when it dies was said, too
		if k == lines {
			_ = cmd.Process.Kill() // it may be dead, which the next check finds out
		}
		var what string
		var n int
		if _, err := fmt.Sscan(said.Text(), &what, &n); err != nil {
			t.Fatalf("the writer says %q", said.Text())
		}
		switch what {
		case "w":
			began = n
		case "u":
			durable[n] = true
		case "f":
			for ; flushed < n; flushed++ {
				durable[flushed+1] = true
			}
		}
	}
	if err := cmd.Wait(); err == nil || began == 0 {
		t.Fatalf("the writer ended by itself: %v", err)
	}
	return durable, began
}

// checkCrash opens the disk again, in its mode and in another one, and compares.
func checkCrash(t *testing.T, paths []string, m Mode, durable map[int]bool, began int) {
	h := newHost(t)
	for _, mode := range []Mode{Page, m} {
		e := open(t, h, Spec{Paths: paths, Mode: mode})
		got := make([]byte, crashBytes)
		if err := e.ReadAt(t.Context(), got, 0); err != nil {
			t.Fatal(err)
		}
		// The last durable write of each byte, and whether another one has begun after it.
		last := make([]int, crashBytes)
		for n := 1; n <= began; n++ {
			off := n * crashBlock % (crashBytes - crashBlock)
			for i := range crashBlock {
				if durable[n] {
					last[off+i] = n
				} else {
					last[off+i] = -n // whoever reads it may find this one, or what was there before
				}
			}
		}
		lost, known, text := 0, 0, ""
		for off, n := range last {
			if n <= 0 {
				continue
			}
			if n != known {
				known, text = n, fmt.Sprintf("%09d.", n)
			}
			if got[off] != text[(off-n*crashBlock%(crashBytes-crashBlock))%10] {
				lost++
			}
		}
		if lost > 0 {
			t.Errorf("%v, read in %v: %d bytes that were durable are lost", m, mode, lost)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}
