package pebblekv

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/kv"
)

const killDirEnv = "SLUICE_TEST_KILL_DIR"

// TestUnsyncedCommitsSurviveKill kills a process that commits without sync. What it was told is
// committed must be there: a power cut may take it, the end of the process may not.
func TestUnsyncedCommitsSurviveKill(t *testing.T) {
	if dir := os.Getenv(killDirEnv); dir != "" {
		commitForever(dir)
	}
	for round := range 5 {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0], "-test.run=^TestUnsyncedCommitsSurviveKill$")
		cmd.Env = append(os.Environ(), killDirEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		told := 0
		for sc := bufio.NewScanner(out); sc.Scan(); {
			if told == 0 { // it lives; how long it takes until then is the machine's business
				time.AfterFunc(time.Duration(50+37*round)*time.Millisecond,
					func() { _ = cmd.Process.Kill() })
			}
			if n, ok := strings.CutPrefix(sc.Text(), "committed "); ok {
				_, _ = fmt.Sscan(n, &told)
			}
		}
		_ = cmd.Wait()
		s, err := Open(Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if kept := countKeys(t, s); kept < told {
			t.Errorf("round %d: %d commits were acknowledged, %d are there", round, told, kept)
		}
		if told == 0 {
			t.Errorf("round %d: the process committed nothing", round)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// commitForever is the child: it tells each commit that returned, one line each, and never ends.
func commitForever(dir string) {
	s, err := Open(Options{Dir: dir})
	if err != nil {
		panic(err)
	}
	for i := 1; ; i++ {
		key := binary.BigEndian.AppendUint64([]byte("k"), uint64(i))
		if _, err := s.Commit(context.Background(), &kv.Txn{Puts: []kv.Put{{Key: key}}}); err != nil {
			panic(err)
		}
		fmt.Printf("committed %d\n", i)
	}
}

func countKeys(t *testing.T, s *Store) (n int) {
	snap := s.Snapshot()
	defer snap.Close()
	err := snap.Scan([]byte("k"), []byte("l"), func(_, _ []byte, _ kv.Version) bool {
		n++
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
