package systest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestMemoryThatIsGoneIsAnError kills an I/O server of a cluster in memory. What was there, fsynced
// or not, is an error for whoever reads it or writes a part of it, also by a handle from before;
// new files and files that are cut to nothing are as good as ever.
func TestMemoryThatIsGoneIsAnError(t *testing.T) {
	opts := clusterOptions{iods: 1, mount: true, mem: true}
	c := startCluster(t, opts)
	old := filepath.Join(c.mnt, "old")
	content := bytes.Repeat([]byte("fsynced "), 32<<10)
	writeSynced(t, old, content)
	cut := filepath.Join(c.mnt, "cut")
	writeSynced(t, cut, content)
	open, err := os.OpenFile(old, os.O_RDWR|syscall.O_DIRECT, 0)
	must(t, err)
	defer open.Close()

	killServers(t, c, func(int) bool { return true })
	c.awaitReady(t, opts)

	buf := alignedBytes(t, 64<<10)
	if n, err := open.ReadAt(buf, 0); !errors.Is(err, syscall.EIO) {
		t.Errorf("the handle from before reads %d bytes, %v; the first ones are %q", n, err, buf[:8])
	}
	fresh, err := os.OpenFile(old, os.O_RDWR|syscall.O_DIRECT, 0)
	must(t, err)
	defer fresh.Close()
	if n, err := fresh.ReadAt(buf, 64<<10); !errors.Is(err, syscall.EIO) {
		t.Errorf("a new handle reads %d bytes, %v; the first ones are %q", n, err, buf[:8])
	}
	if _, err := fresh.WriteAt(buf, 64<<10); !errors.Is(err, syscall.EIO) {
		t.Errorf("writing a part of what is lost: %v", err)
	}

	next := filepath.Join(c.mnt, "next")
	writeSynced(t, next, content)
	must(t, os.Truncate(cut, 0))
	writeSynced(t, cut, content[:100<<10])
	if out := c.sluice(t, "cat", "/next"); out != string(content) {
		t.Errorf("a new file has %d bytes, want %d", len(out), len(content))
	}
	if out := c.sluice(t, "cat", "/cut"); out != string(content[:100<<10]) {
		t.Errorf("a file that was cut to nothing has %d bytes, want %d", len(out), 100<<10)
	}
	must(t, open.Close())
	must(t, fresh.Close())
	out := run(t, "", c.bin, "down", "--dir", c.dir)
	if strings.Contains(out, "stays") || !strings.Contains(out, "gone") {
		t.Errorf("down says of data in memory: %s", out)
	}
}

func writeSynced(t *testing.T, path string, content []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	must(t, err)
	_, err = f.Write(content)
	must(t, err)
	must(t, f.Sync())
	must(t, f.Close())
}
