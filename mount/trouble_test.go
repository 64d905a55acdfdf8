package mount

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"golang.org/x/sys/unix"
)

// TestErrorsReachPrograms as the errno that a local file system would give.
func TestErrorsReachPrograms(t *testing.T) {
	c := newCluster(t, 4)
	dir := c.mount(Options{}).Dir()
	for _, test := range []struct {
		kind errs.Kind
		want unix.Errno
	}{
		{errs.NoSpace, unix.ENOSPC}, {errs.Quota, unix.EDQUOT}, {errs.IO, unix.EIO},
		{errs.Corrupt, unix.EIO}, {errs.Fenced, unix.EIO}, {errs.ReadOnly, unix.EROFS},
	} {
		f := open(t, filepath.Join(dir, fmt.Sprint("f", uint(test.kind))), os.O_CREATE|os.O_RDWR)
		fail := errs.New(test.kind, "disk", "", nil)
		c.data.write.Store(&fail)
		_, err := f.Write(pattern(3<<20, 1))
		want(t, err, test.want)
		c.data.write.Store(nil)
		_, err = f.WriteAt(pattern(3<<20, 2), 0)
		must(t, err)
		must(t, f.Close())
		equalFile(t, f.Name(), pattern(3<<20, 2))
	}
}

// TestErrorsBehind: data of a sequential writer that could not be written after write(2) had
// returned is reported by a later write, by close or by fsync.
func TestErrorsBehind(t *testing.T) {
	c := newCluster(t, 4)
	dir := c.mount(Options{}).Dir()
	for name, report := range map[string]func(f *os.File) error{
		"write": func(f *os.File) error {
			for range 100 {
				if _, err := f.Write(pattern(1<<20, 1)); err != nil {
					return err
				}
			}
			return nil
		},
		"close": (*os.File).Close, "fsync": (*os.File).Sync,
	} {
		f, err := os.Create(filepath.Join(dir, name))
		must(t, err)
		for range 3 {
			_, err := f.Write(pattern(20_000, 1))
			must(t, err)
		}
		fail := errs.New(errs.NoSpace, "disk", "", nil)
		c.data.write.Store(&fail)
		if _, err = f.Write(pattern(5000, 1)); !errors.Is(err, unix.ENOSPC) {
			must(t, err) // what was written before is stored by itself after a while
			want(t, report(f), unix.ENOSPC)
		}
		c.data.write.Store(nil)
		_ = f.Close()
	}
}

// TestManySequentialWriters: more writers than there are chunks, of sizes that fit nothing.
func TestManySequentialWriters(t *testing.T) {
	t.Run("tcp", func(t *testing.T) { sequentialWriters(t, newCluster(t, 4)) })
	t.Run("shm", func(t *testing.T) { sequentialWriters(t, newClusterBy(t, 4, true)) })
}

func sequentialWriters(t *testing.T, c *cluster) {
	c.writeBehind = 3 << 20
	dir := c.mount(Options{}).Dir()
	var wg sync.WaitGroup
	for w := range 12 {
		wg.Go(func() {
			var all []byte
			p := filepath.Join(dir, fmt.Sprint(w))
			f, err := os.Create(p)
			if err != nil {
				t.Error(err)
				return
			}
			for i := range 60 {
				data := pattern(1000*w+i*977, byte(i))
				if _, err := f.Write(data); err != nil {
					t.Error(err)
				}
				all = append(all, data...)
				if i%20 == 7 {
					if st, err := os.Stat(p); err != nil || st.Size() != int64(len(all)) {
						t.Errorf("size %v, want %d, %v", st, len(all), err)
					}
				}
			}
			got := make([]byte, len(all))
			if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, all) {
				t.Errorf("writer %d: other bytes, %v", w, err)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// TestSyncErrors are reported by fsync, once, and by every descriptor.
func TestSyncErrors(t *testing.T) {
	c := newCluster(t, 4)
	dir := c.mount(Options{}).Dir()
	p := filepath.Join(dir, "f")
	f, g := open(t, p, os.O_CREATE|os.O_RDWR), open(t, p, os.O_RDWR)
	_, err := f.Write(pattern(2<<20, 1))
	must(t, err)
	fail := errs.New(errs.IO, "disk", "", nil)
	c.data.sync.Store(&fail)
	want(t, f.Sync(), unix.EIO)
	c.data.sync.Store(nil)
	must(t, f.Sync())
	want(t, g.Sync(), unix.EIO)
	must(t, g.Sync())
	must(t, f.Close())
}

// TestTwoMounts is close-to-open: what one mount closed the other one sees when it opens the file.
func TestTwoMounts(t *testing.T) {
	c := newCluster(t, 4)
	a, b := c.mount(Options{}).Dir(), c.mount(Options{}).Dir()
	name := func(dir string) string { return filepath.Join(dir, "f") }
	for i := range 20 {
		from, to := a, b
		if i%2 == 1 {
			from, to = b, a
		}
		data := pattern(100000+i%3*5000, byte(i))
		must(t, os.WriteFile(name(from), data, 0o644))
		equalFile(t, name(to), data)
		equalFile(t, name(from), data)
		// Changed in place: the size tells nothing.
		f := open(t, name(to), os.O_RDWR)
		_, err := f.WriteAt([]byte("changed"), 5000)
		must(t, err)
		must(t, f.Close())
		copy(data[5000:], "changed")
		equalFile(t, name(from), data)
	}
	// A reader that stays open sees a log grow, byte for byte, when its attributes are refreshed.
	w, r := open(t, name(a), os.O_WRONLY|os.O_TRUNC), open(t, name(b), os.O_RDONLY)
	var wrote []byte
	for i := range 3 {
		line := bytes.Repeat([]byte{byte('a' + i)}, 1000)
		_, err := w.Write(line)
		must(t, err)
		wrote = append(wrote, line...)
		time.Sleep(1100 * time.Millisecond)
		got := make([]byte, 5000)
		n, err := r.ReadAt(got, 0)
		if err != io.EOF || !bytes.Equal(got[:n], wrote) {
			t.Fatalf("reader of a growing file: %d bytes of %d, %v", n, len(wrote), err)
		}
	}
	// A name that the other mount replaced leads to the new file at once or after a second.
	must(t, os.WriteFile(filepath.Join(a, "new"), []byte("new"), 0o644))
	must(t, os.Rename(filepath.Join(a, "new"), name(a)))
	time.Sleep(1100 * time.Millisecond)
	equalFile(t, name(b), []byte("new"))
}

// TestSharedByWriters: programs of two mounts that write parts of a file, and tell each other that
// they have, find what the other one wrote at once.
func TestSharedByWriters(t *testing.T) {
	c := newCluster(t, 2)
	a, b := c.mount(Options{}).Dir(), c.mount(Options{}).Dir()
	const part = 64 << 10 // whole pages: the kernel does not drop those that it has
	f := open(t, filepath.Join(a, "f"), os.O_CREATE|os.O_RDWR)
	_, err := f.WriteAt(pattern(part, 1), 0)
	must(t, err)
	_, err = f.Stat() // the kernel knows its length
	must(t, err)
	g := open(t, filepath.Join(b, "f"), os.O_RDWR)
	for i, files := range [][2]*os.File{{g, f}, {f, g}, {g, f}} {
		data, off := pattern(part, byte(i)), int64(part*(i+1))
		_, err := files[0].WriteAt(data, off)
		must(t, err)
		got := make([]byte, part)
		if n, err := files[1].ReadAt(got, off); err != nil || !bytes.Equal(got, data) {
			t.Errorf("part %d: %d bytes, %v", i, n, err)
		}
	}
}

// TestPagesAreKept: a file that nobody changed is read from the kernel's pages the second time,
// also after this mount itself has written it.
func TestPagesAreKept(t *testing.T) {
	c := newCluster(t, 4)
	m := c.mount(Options{})
	p := filepath.Join(m.Dir(), "f")
	data := pattern(4<<20, 1)
	must(t, os.WriteFile(p, data, 0o644))
	must(t, waitFor(func() bool { return m.bridge.files.count() == 0 }))
	before := c.data.reads.Load()
	equalFile(t, p, data)
	equalFile(t, p, data)
	if n := c.data.reads.Load() - before; n != 0 {
		t.Errorf("%d requests for pages that the kernel has", n)
	}
}

func waitFor(ok func() bool) error {
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return errors.New("it did not happen within a minute")
		}
	}
	return nil
}

// TestUnmountInUse: unmounting always works; programs that still use the file system get errors.
func TestUnmountInUse(t *testing.T) {
	m := newCluster(t, 4).mount(Options{})
	f := open(t, filepath.Join(m.Dir(), "f"), os.O_CREATE|os.O_RDWR)
	_, err := f.WriteString("x")
	must(t, err)
	began := time.Now()
	must(t, m.Unmount())
	if time.Since(began) > 40*time.Second {
		t.Errorf("unmounting took %v", time.Since(began))
	}
	m.Wait()
	if _, err := f.WriteString("y"); err == nil {
		t.Error("a write after unmounting succeeded")
	}
	if _, err := os.Stat(filepath.Join(m.Dir(), "f")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory below: %v", err)
	}
	must(t, m.Unmount())
}

// TestUnmountWhileCopiedElsewhere: a copy of the mount in another name space, as containers make
// when they start, does not keep it alive.
func TestUnmountWhileCopiedElsewhere(t *testing.T) {
	m := newCluster(t, 1).mount(Options{})
	elsewhere := exec.Command("unshare", "--mount", "--propagation", "private", "sleep", "300")
	if err := elsewhere.Start(); err != nil {
		t.Skip(err)
	}
	defer func() {
		_ = elsewhere.Process.Kill()
		_ = elsewhere.Wait()
	}()
	must(t, waitFor(func() bool { // unshare has become sleep
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", elsewhere.Process.Pid))
		return string(name) == "sleep\n"
	}))
	must(t, m.Unmount())
	m.Wait()
}

// TestUnmountedByOthers ends the mount as well.
func TestUnmountedByOthers(t *testing.T) {
	m := newCluster(t, 4).mount(Options{})
	must(t, unmount(m.Dir(), 0))
	m.Wait()
	must(t, m.Unmount())
}

const helperEnv = "SLUICE_MOUNT_HELPER"

// TestHelperProcess is the program that TestDeadServer kills.
func TestHelperProcess(t *testing.T) {
	dir := os.Getenv(helperEnv)
	if dir == "" {
		t.Skip("is started by TestDeadServer")
	}
	_, err := Mount(context.Background(), newCluster(t, 1).client(), dir, Options{})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "ready"), nil, 0o644))
	fmt.Println("ready")
	time.Sleep(time.Minute)
}

// TestDeadServer: the mount of a process that was killed is removed by the next one.
func TestDeadServer(t *testing.T) {
	dir, err := os.MkdirTemp("", "sluice-mount-")
	must(t, err)
	defer os.Remove(dir)
	cmd := exec.Command(os.Args[0], "-test.run=^TestHelperProcess$", "-test.v")
	cmd.Env = append(os.Environ(), helperEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	text := make([]byte, 4096)
	for n := 0; !strings.Contains(string(text[:n]), "ready"); {
		k, err := out.Read(text[n:])
		must(t, err)
		n += k
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	_, err = os.Stat(dir)
	want(t, err, unix.ENOTCONN)
	m, err := Mount(context.Background(), newCluster(t, 1).client(), dir, Options{})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o644))
	must(t, m.Unmount())
}

// TestMountRefuses what is no directory.
func TestMountRefuses(t *testing.T) {
	fs := newCluster(t, 1).client()
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o644))
	for path, kind := range map[string]errs.Kind{
		file: errs.NotDir, filepath.Join(file, "x"): errs.NotDir, file + "none": errs.NotFound,
	} {
		if _, err := Mount(context.Background(), fs, path, Options{}); errs.KindOf(err) != kind {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Mount(context.Background(), fs, t.TempDir(), Options{MemoryMax: 1}); err == nil {
		t.Error("one byte of memory accepted")
	}
}

// TestReadOnly refuses changes.
func TestReadOnly(t *testing.T) {
	dir := newCluster(t, 1).mount(Options{ReadOnly: true}).Dir()
	want(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o644), unix.EROFS)
}

// TestManyAtOnce builds trees in parallel, as a compiler with its cache does: many small files,
// renames into place, readers.
func TestManyAtOnce(t *testing.T) {
	dir := newMount(t)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			if err := buildTree(filepath.Join(dir, fmt.Sprint(w))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for w := range 8 {
		if err := os.RemoveAll(filepath.Join(dir, fmt.Sprint(w))); err != nil {
			t.Error(err)
		}
	}
}

func buildTree(root string) error {
	for i := range 60 {
		dir := filepath.Join(root, fmt.Sprint(i%7), fmt.Sprint(i%3))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		p := filepath.Join(dir, fmt.Sprint(i))
		data := pattern(i*997, byte(i))
		if err := os.WriteFile(p+".tmp", data, 0o644); err != nil {
			return err
		}
		if err := os.Rename(p+".tmp", p); err != nil {
			return err
		}
		got, err := os.ReadFile(p)
		if err != nil || !bytes.Equal(got, data) {
			return fmt.Errorf("%s: %d bytes of %d: %w", p, len(got), len(data), err)
		}
		if _, err := os.ReadDir(root); err != nil {
			return err
		}
	}
	return nil
}

// TestKilledWhileWaiting: a process that waits for a server that is away can be killed.
func TestKilledWhileWaiting(t *testing.T) {
	c := newCluster(t, 1)
	m := c.mount(Options{})
	p := filepath.Join(m.Dir(), "f")
	must(t, os.WriteFile(p, []byte("x"), 0o644))
	gone := errs.New(errs.Disconnected, "server", "", nil)
	c.data.write.Store(&gone)
	cmd := exec.Command("dd", "if=/dev/zero", "of="+p, "bs=1M", "count=1", "conv=notrunc")
	must(t, cmd.Start())
	time.Sleep(300 * time.Millisecond)
	must(t, cmd.Process.Kill())
	began := time.Now()
	_ = cmd.Wait()
	if d := time.Since(began); d > 4*time.Second { // before WaitMax ends its wait
		t.Errorf("it took %v to die", d)
	}
	c.data.write.Store(nil)
	equalFile(t, p, []byte("x"))
}

// TestInterruptedWhileWaiting: a program that handles SIGINT gets the chance to do so while it
// waits for a server that is away: dd prints what it has done, and ends.
func TestInterruptedWhileWaiting(t *testing.T) {
	c := newCluster(t, 1)
	fs, err := client.New(c.meta, c.data, client.Options{WaitMax: time.Minute})
	must(t, err)
	dir := t.TempDir()
	m, err := Mount(context.Background(), fs, dir, Options{})
	must(t, err)
	p := filepath.Join(dir, "f")
	must(t, os.WriteFile(p, []byte("x"), 0o644))
	gone := errs.New(errs.Disconnected, "server", "", nil)
	c.data.write.Store(&gone)
	var said bytes.Buffer
	cmd := exec.Command("dd", "if=/dev/zero", "of="+p, "bs=1M", "count=1", "conv=notrunc")
	cmd.Stderr = &said
	must(t, cmd.Start())
	must(t, waitFor(func() bool {
		caught, _ := strconv.ParseUint(processStatus(uint32(cmd.Process.Pid))["SigCgt"], 16, 64)
		return caught&(1<<(unix.SIGINT-1)) != 0
	}))
	time.Sleep(300 * time.Millisecond) // in which it begins to wait
	began := time.Now()
	must(t, cmd.Process.Signal(unix.SIGINT))
	_ = cmd.Wait()
	if d := time.Since(began); d > 20*time.Second || !strings.Contains(said.String(), "records out") {
		t.Errorf("it took %v, and said %q", d, &said)
	}
	c.data.write.Store(nil)
	must(t, m.Unmount())
	must(t, fs.Close())
}
