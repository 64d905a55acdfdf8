package systest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestFullDisk: a cluster on one small disk is filled, emptied and used; then somebody else fills
// the disk to the last byte. Removing, reading and asking always work, a restart too, and with room
// everything goes on by itself.
func TestFullDisk(t *testing.T) {
	d := newDisk(t, 500<<20)
	o := clusterOptions{iods: 2, mount: true, dir: filepath.Join(d.dir, "c")}
	c := startCluster(t, o)
	total, before := df(t, c.mnt)
	if total < 300<<20 || before < 200<<20 {
		t.Fatalf("an empty cluster has %d bytes free of %d", before, total)
	}
	big := filepath.Join(c.mnt, "big")
	if n := writeUntilFull(t, big); n < before*3/4 {
		t.Errorf("%d bytes went in where %d were free", n, before)
	}
	must(t, os.Remove(big))
	c.within(t, "what was removed is free again", func() error {
		if _, free := df(t, c.mnt); free < before*9/10 {
			return fmt.Errorf("%d bytes were free before, %d are now", before, free)
		}
		if free := d.free(); free < before*8/10 {
			return fmt.Errorf("the disk below has %d bytes free", free)
		}
		return nil
	})
	makeSmall(t, c.mnt, 0, 400)
	checkSmall(t, c.mnt, 0, 400)
	c.status(t, "")

	d.fill(0)
	c.onFullDisk(t, d, 0)
	d.fill(0) // what the removals have used of the reserve, too
	c.restart(t)
	d.fill(0) // a start gives back what nobody uses
	c.onFullDisk(t, d, 200)
	d.empty()
	c.within(t, "creating works again", func() error {
		return os.WriteFile(filepath.Join(c.mnt, "again"), small(1), 0o644)
	})
	c.within(t, "the service is well", func() error {
		if text := c.healthz(t, "meta"); text != "ok\n" {
			return errors.New(text)
		}
		return nil
	})
	makeSmall(t, c.mnt, 1000, 1200)
	checkSmall(t, c.mnt, 300, 400)
	checkSmall(t, c.mnt, 1000, 1200)
	c.status(t, "")
}

// onFullDisk checks what works where not a byte is free, and that everybody says so. The small
// files [from, from+100) and from+150 are removed by it.
func (c *cluster) onFullDisk(t *testing.T, d *disk, from int) {
	t.Helper()
	c.within(t, "creating stops", func() error {
		err := os.WriteFile(filepath.Join(c.mnt, "no"), small(0), 0o644)
		_ = os.Remove(filepath.Join(c.mnt, "no"))
		if !errors.Is(err, syscall.ENOSPC) {
			return fmt.Errorf("creating a file on a full disk: %v", err)
		}
		return nil
	})
	checkSmall(t, c.mnt, from, 400)
	c.within(t, "everybody says that it is full", func() error {
		d.fill(0) // what the service has given up for removals, too
		out, err := exec.Command(c.bin, "status", "--dir", c.dir).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "refuses changes") {
			return fmt.Errorf("sluice status: %v:\n%s", err, out)
		}
		if text := c.healthz(t, "meta"); !strings.Contains(text, "left") {
			return fmt.Errorf("/healthz says %q", text)
		}
		return nil
	})
	for i := from; i < from+100; i++ {
		must(t, os.Remove(smallName(c.mnt, i)))
	}
	must(t, os.Truncate(smallName(c.mnt, from+150), 10))
	got, err := os.ReadFile(smallName(c.mnt, from+150))
	must(t, err)
	if !bytes.Equal(got, small(from + 150)[:10]) {
		t.Errorf("a file that was cut on a full disk holds %q", got)
	}
	c.sluice(t, "rm", "/"+filepath.Base(smallName("", from+150)))
	c.sluice(t, "ls", "/")
	c.sluice(t, "cat", "/"+filepath.Base(smallName("", 399)))
}

func smallName(dir string, i int) string { return filepath.Join(dir, fmt.Sprintf("small%04d", i)) }

func makeSmall(t *testing.T, dir string, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		must(t, os.WriteFile(smallName(dir, i), small(i), 0o644))
	}
	must(t, syncDir(dir))
}

// checkSmall reads those small files that are there; at least half of them must be.
func checkSmall(t *testing.T, dir string, from, to int) {
	t.Helper()
	read := 0
	for i := from; i < to; i++ {
		got, err := os.ReadFile(smallName(dir, i))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		must(t, err)
		read++
		if !bytes.Equal(got, small(i)) {
			t.Fatalf("file %d holds other bytes", i)
		}
	}
	if read < (to-from)/2 {
		t.Errorf("%d of %d files are there", read, to-from)
	}
}

// within waits for something to be so.
func (c *cluster) within(t *testing.T, what string, ok func() error) {
	t.Helper()
	for deadline := time.Now().Add(readyLimit); ; time.Sleep(100 * time.Millisecond) {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, readyLimit, err)
		}
	}
}

// status runs `sluice status`, which must work and say something.
func (c *cluster) status(t *testing.T, says string) {
	t.Helper()
	c.within(t, "sluice status", func() error { // it leaves out who is slow
		out, err := exec.Command(c.bin, "status", "--dir", c.dir).CombinedOutput()
		if err != nil || !strings.Contains(string(out), says) || says == "" &&
			strings.Contains(string(out), "refuses") {
			return fmt.Errorf("%v, want %q:\n%s", err, says, out)
		}
		return nil
	})
}

// healthz is what a process says of its health.
func (c *cluster) healthz(t *testing.T, process string) string {
	t.Helper()
	addr, err := os.ReadFile(filepath.Join(c.dir, "run", process+".admin"))
	must(t, err)
	r, err := http.Get("http://" + strings.TrimSpace(string(addr)) + "/healthz")
	must(t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	must(t, err)
	return string(text)
}

// restart stops the cluster and starts it again.
func (c *cluster) restart(t *testing.T) {
	t.Helper()
	run(t, "", c.bin, "down", "--dir", c.dir)
	_ = c.cmd.Wait()
	c.start(t)
	c.awaitReady(t, c.opts)
}
