package systest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// nameless is a file that is open and has no name any more.
type nameless struct {
	f    *os.File
	want []byte
	buf  []byte // aligned, as O_DIRECT demands: the kernel must not answer from its own memory
}

func newNameless(t *testing.T, c *cluster) *nameless {
	t.Helper()
	const size = 1 << 20
	n := &nameless{want: make([]byte, size)}
	for i := range n.want {
		n.want[i] = byte(1 + i%251)
	}
	n.buf = alignedBytes(t, size)
	path := filepath.Join(c.mnt, "nameless")
	must(t, os.WriteFile(path, n.want, 0o644))
	run(t, "", "sync", path)
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECT, 0)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	n.f = f
	must(t, n.read())
	must(t, os.Remove(path))
	return n
}

// wrongBytes is the one error that a read must never give.
type wrongBytes struct{ at int }

func (w wrongBytes) Error() string { return fmt.Sprintf("wrong bytes from %d on", w.at) }

// read is nil for the right bytes.
func (n *nameless) read() error {
	clear(n.buf)
	got, err := n.f.ReadAt(n.buf, 0)
	if err != nil {
		return err
	}
	if !bytes.Equal(n.buf[:got], n.want) {
		at := 0
		for at < got && n.buf[at] == n.want[at] {
			at++
		}
		return wrongBytes{at}
	}
	return nil
}

// watch reads again and again for a while and counts what came of it.
func (n *nameless) watch(t *testing.T, d time.Duration) (right, failed int) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		switch err := n.read().(type) {
		case nil:
			right++
		case wrongBytes:
			t.Fatalf("after %d good reads and %d errors: %v", right, failed, err)
		default:
			failed++
		}
	}
	return right, failed
}

// pauseCase pauses one process of a cluster whose clients may be silent for session.
type pauseCase struct {
	session, pause time.Duration
	process        string
	lost           bool // so long that the file is gone: that must be an error
}

// longer is how often a pause after which the file should be gone is tried again, twice as long: a
// service that the machine left waiting, too, gives everybody more time.
const longer = 3

func (p *pauseCase) run(t *testing.T) {
	c := startCluster(t, clusterOptions{iods: 2, mount: true,
		extra: []string{"--session-time", p.session.String()}})
	n := newNameless(t, c)
	for try := 0; ; try++ {
		pid := c.pidOf(t, p.process)
		if p.process == "mount" {
			pid = serverOf(pid)
		}
		stopFor(t, pid, p.pause<<try)
		valid := min(2*p.session, time.Minute)
		right, failed := n.watch(t, p.session+valid+2*time.Second)
		t.Logf("%s paused for %v: %d reads gave the right bytes, %d an error", p.process,
			p.pause<<try, right, failed)
		if kept := failed == 0; kept && p.lost && try < longer {
			continue
		}
		if p.lost && right > 0 || !p.lost && failed > 0 {
			t.Errorf("lost %v: %d reads gave the right bytes, %d an error", p.lost, right, failed)
		}
		return
	}
}

// TestNamelessFileAfterPauses: a file that is open and has no name shows its bytes or an error,
// never zeroes, however long its client or the metadata service did not run. Whoever comes back
// before his rights have run out keeps the file.
func TestNamelessFileAfterPauses(t *testing.T) {
	const session = 3 * time.Second
	for _, p := range []pauseCase{
		{session, 7 * session / 4, "mount", false},
		{session, 5 * session, "mount", true},
		{session, 7 * session / 4, "meta", false},
		{session, 5 * session, "meta", false},
	} {
		t.Run(fmt.Sprintf("%s/%v", p.process, p.pause), func(t *testing.T) {
			t.Parallel()
			p.run(t)
		})
	}
	if os.Getenv("SLUICE_SOAK") == "" {
		return
	}
	for _, process := range []string{"mount", "meta"} {
		p := pauseCase{30 * time.Second, 34 * time.Second, process, false}
		t.Run("default/"+process, func(t *testing.T) {
			t.Parallel()
			p.run(t)
		})
	}
}
