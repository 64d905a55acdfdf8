package systest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestOneFullServer: of three I/O servers one has a small disk, which is filled. Its files cannot
// grow; all others can, new ones go elsewhere, df says what there is, and with room it is used
// again.
func TestOneFullServer(t *testing.T) {
	c := unequalCluster(t)
	at := func(name string) string { return filepath.Join(c.mnt, name) }
	block := bytes.Repeat([]byte("sluice\n\x00"), 1<<17)
	grow := func(name string, off int64) error { return writeAt(at(name), block, off) }

	for _, name := range []string{"wide/f", "rest/f", "narrow/f"} {
		for i := range 3 { // one unit at each server
			must(t, grow(name, int64(i)<<20))
		}
	}
	servers := serversOf(t, c, "/wide/f")
	total, before := df(t, at("narrow"))
	if len(servers) != 3 || total > 200<<20 || before < 50<<20 {
		t.Fatalf("of %q one has %d bytes, %d free", servers, total, before)
	}
	if n := writeUntilFull(t, at("narrow/fill")); n < before/2 {
		t.Errorf("%d bytes went in where %d were free", n, before)
	}
	c.within(t, "df knows that it is full", func() error {
		if _, free := df(t, at("narrow")); free != 0 {
			return fmt.Errorf("%d bytes are free", free)
		}
		return nil
	})

	if err := grow("narrow/more", 0); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("another file on the full server: %v", err)
	}
	for i := int64(3); i < 30; i++ {
		must(t, grow("rest/f", i<<20))
		err := grow("wide/f", i<<20)
		if full := servers[i%3] == "iod2"; full != errors.Is(err, syscall.ENOSPC) || !full && err != nil {
			t.Errorf("unit %d of a file, at %s: %v", i, servers[i%3], err)
		}
	}
	for i := range 10 {
		for _, name := range []string{"new%d", "wide/new%d"} {
			name = fmt.Sprintf(name, i)
			for unit := range int64(4) {
				must(t, grow(name, unit<<20))
			}
			if got := serversOf(t, c, "/"+name); len(got) != 2 || strings.Contains(fmt.Sprint(got), "iod2") {
				t.Errorf("a new file goes to %q", got)
			}
		}
	}
	if _, free := df(t, c.mnt); free < 100<<20 {
		t.Errorf("the cluster has %d bytes free", free)
	}
	c.checkUnits(t, block, "rest/f", 0, 30)
	c.checkUnits(t, block, "wide/f", 0, 3)
	c.checkUnits(t, block, "narrow/f", 0, 3)

	must(t, os.Remove(at("narrow/fill")))
	c.within(t, "the server is used again", func() error {
		_ = os.Remove(at("again"))
		if err := grow("again", 0); err != nil {
			return err
		}
		if got := serversOf(t, c, "/again"); len(got) != 3 {
			return fmt.Errorf("a new file goes to %q", got)
		}
		return nil
	})
	must(t, grow("narrow/more", 0))
	must(t, grow("wide/f", 30<<20))
	c.sluice(t, "fsck")
}

// unequalCluster has three I/O servers, of which the second has a small disk and is the pool
// narrow; the others are the pool rest. Files in /narrow and /rest lie there, those in /wide on
// all three.
func unequalCluster(t *testing.T) *cluster {
	t.Helper()
	d := newDisk(t, 200<<20)
	dir := filepath.Join(t.TempDir(), "c")
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.Mkdir(filepath.Join(d.dir, "iod2"), 0o700))
	must(t, os.Symlink(filepath.Join(d.dir, "iod2"), filepath.Join(dir, "iod2")))
	c := startCluster(t, clusterOptions{iods: 3, mount: true, dir: dir})
	c.sluice(t, "pool", "create", "narrow", "iod2")
	c.sluice(t, "pool", "create", "rest", "iod1", "iod3")
	for _, name := range []string{"narrow", "rest"} {
		c.sluice(t, "mkdir", "/"+name)
		c.sluice(t, "layout", "set", "--pool", name, "/"+name)
	}
	c.sluice(t, "mkdir", "/wide")
	c.sluice(t, "layout", "set", "--width", "3", "/wide")
	return c
}

// writeAt writes a part of a file and says what its close says, too.
func writeAt(name string, p []byte, off int64) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(p, off)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// serversOf are the servers of a file, in order.
func serversOf(t *testing.T, c *cluster, path string) []string {
	t.Helper()
	out := c.sluice(t, "layout", "get", path)
	_, list, _ := strings.Cut(out, " over ")
	return strings.Fields(list)
}

// checkUnits compares units of a file with what was written.
func (c *cluster) checkUnits(t *testing.T, block []byte, name string, from, to int64) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.mnt, name))
	must(t, err)
	for i := from; i < to; i++ {
		if !bytes.Equal(data[i<<20:(i+1)<<20], block) {
			t.Errorf("unit %d of %s holds other bytes", i, name)
		}
	}
}
