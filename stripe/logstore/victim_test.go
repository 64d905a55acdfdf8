package logstore

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
	"golang.org/x/sys/unix"
)

// victimEnv names the folder in which a child process works until it is killed or its disk is gone;
// versionEnv is the number from which it counts versions.
const (
	victimEnv  = "LOGSTORE_VICTIM"
	versionEnv = "LOGSTORE_VICTIM_VERSION"
)

const (
	victimWriters = 4
	victimFiles   = 2 * victimWriters
)

func victimPaths(dir string) PathOptions {
	return PathOptions{Paths: []string{dir}, Make: true, Bytes: 128 << 20, LogBytes: 2 << 20,
		PendingBytes: 1 << 20, Logger: quiet()}
}

func victimID(file int) stripe.ObjectID { return stripe.ObjectID{File: uint64(file + 1), Gen: 1} }

// victimData is what version v of a file holds: sizes on both sides of 64 KiB.
func victimData(file int, v uint64) []byte {
	p := bytes.Repeat([]byte{byte(v), byte(v >> 8), byte(file), 1}, (1000+file*20_000)/4)
	binary.LittleEndian.PutUint64(p, v)
	return p
}

// runVictim turns the test binary into the victim: a few writers replace their files by their next
// versions, each as one record, and cut them off before now and then. It says on standard output
// what was acknowledged, and when: "a time file version durability", and "c time file version" for
// a cut before that version, which "t time file version" has announced.
func runVictim() {
	dir := os.Getenv(victimEnv)
	if dir == "" {
		return
	}
	from, err := strconv.ParseUint(os.Getenv(versionEnv), 10, 64)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	s, err := OpenPaths(victimPaths(dir))
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println("ready")
	for w := range victimWriters {
		go victimWrites(s, []int{w, w + victimWriters}, from)
	}
	select {}
}

// victimWrites is one writer. When the disk is gone it waits for its end.
func victimWrites(s *Store, files []int, v uint64) {
	ctx := context.Background()
	for {
		v++
		for _, file := range files {
			id := victimID(file)
			in, err := s.Stat(ctx, id)
			if err != nil {
				select {}
			}
			st := wire.Stamp{TruncSeq: in.TruncSeq}
			if rand.IntN(10) == 0 {
				st.TruncSeq++
				fmt.Println("t", hostTime(), file, v)
				if s.Truncate(ctx, id, 0, st) != nil {
					select {}
				}
				fmt.Println("c", hostTime(), file, v)
			}
			d := stripe.Durability(rand.IntN(3))
			if s.WriteAt(ctx, id, [][]byte{victimData(file, v)}, 0, st, d) != nil {
				select {}
			}
			fmt.Println("a", hostTime(), file, v, d)
		}
	}
}

// hostTime is a clock that all processes share.
func hostTime() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// fileFate is what is known of a file: versions, 0 for an empty file.
type fileFate struct {
	was     uint64 // when the round began
	acked   uint64
	durable uint64
	tried   uint64 // before this version it was to be cut
	cut     uint64 // nothing older than this version may come back
}

type fates struct {
	files [victimFiles]fileFate
	from  uint64
	over  atomic.Int64 // what is acknowledged later than this does not count; 0: all does
}

// workAndEnd lets a victim work on the folder for a while, ends it, and notes what it has said. It
// judges the lines when the victim is dead, since only then it knows when the end began.
func workAndEnd(t *testing.T, dir string, a *fates, end func(victim *os.Process)) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for i := range a.files {
		f := &a.files[i]
		*f = fileFate{was: f.was, acked: f.was, durable: f.was}
		a.from = max(a.from, f.was)
	}
	a.over.Store(0)
	a.from += 10 // versions that were issued and not acknowledged are not issued again
	cmd := exec.Command(self, "-test.run", "^$")
	cmd.Env = append(os.Environ(), victimEnv+"="+dir, fmt.Sprintf("%s=%d", versionEnv, a.from))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Errorf("the victim says %q", lines.Text())
	}
	time.AfterFunc(time.Duration(20+rand.IntN(150))*time.Millisecond, func() { end(cmd.Process) })
	var said []string
	for lines.Scan() {
		said = append(said, lines.Text())
	}
	_ = cmd.Wait()
	for _, line := range said {
		a.note(line)
	}
}

// note takes a line of the victim. The last one may be cut off in the middle.
func (a *fates) note(line string) {
	var what string
	var at int64
	var file, d int
	var v uint64
	n, _ := fmt.Sscan(line, &what, &at, &file, &v, &d)
	over := a.over.Load()
	late := over > 0 && at >= over
	switch {
	case n == 4 && what == "t":
		a.files[file].tried = v
	case late:
	case n == 4 && what == "c":
		a.files[file].cut = v
	case n == 5 && what == "a":
		f := &a.files[file]
		f.acked = v
		if stripe.Durability(d) != stripe.Volatile {
			f.durable = v
		}
	}
	a.from = max(a.from, v)
}

// verifyVictim holds the store against what was said: each file is one version as a whole, not
// older than the last that must be there, none from before a cut, none that was never issued.
func verifyVictim(t *testing.T, dir string, power bool, a *fates) {
	t.Helper()
	s, err := OpenPaths(victimPaths(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for file := range victimFiles {
		p, err := get(s, victimID(file), 0, len(victimData(file, 0)))
		if err != nil {
			t.Fatal(err)
		}
		f := &a.files[file]
		least := f.acked
		if power {
			least = f.durable
		}
		v := binary.LittleEndian.Uint64(p)
		empty := v == 0 && (f.tried > least || least == 0) // cut after what must be there
		if v < max(least, f.cut) && !empty || v > a.from+1 {
			t.Fatalf("file %d is at version %d: %+v, issued up to %d", file, v, *f, a.from+1)
		}
		if v > 0 && !bytes.Equal(p, victimData(file, v)) {
			t.Fatalf("file %d is a mixture", file)
		}
		f.was = v
	}
}

// TestKill kills a writing process at random moments. The disk goes on, so that everything that was
// acknowledged is there, volatile or not.
func TestKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	var a fates
	for range numberOf("LOGSTORE_KILLS", 6) {
		workAndEnd(t, dir, &a, func(p *os.Process) { _ = p.Kill() })
		verifyVictim(t, dir, false, &a)
	}
}

// fsShutdown is FS_IOC_SHUTDOWN; without flushing the journal it is the nearest to a power cut that
// a file system offers.
const (
	fsShutdown = 0x8004587d
	noLogFlush = 2
)

// TestPower shuts the file system down under a writing process. What it says is acknowledged once
// the cut has begun does not count, as nobody hears it after a power cut: XFS answers a sync with
// success whose journal write the shutdown has just aborted.
func TestPower(t *testing.T) {
	for _, fs := range []string{"ext4", "xfs"} {
		t.Run(fs, func(t *testing.T) {
			mkfs, err := exec.LookPath("mkfs." + fs)
			if err != nil || os.Getuid() != 0 {
				t.Skipf("needs root and mkfs.%s", fs)
			}
			image, mnt := filepath.Join(t.TempDir(), "image"), t.TempDir()
			if err := os.WriteFile(image, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(image, 512<<20); err != nil {
				t.Fatal(err)
			}
			run := func(args ...string) {
				t.Helper()
				if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
					t.Fatalf("%v: %v: %s", args, err, out)
				}
			}
			run(mkfs, "-q", image)
			if out, err := exec.Command("mount", "-o", "loop", image, mnt).CombinedOutput(); err != nil {
				t.Skipf("cannot mount %s here: %s", fs, out)
			}
			mounted := true
			t.Cleanup(func() {
				if mounted {
					_ = exec.Command("umount", "-l", mnt).Run()
				}
			})
			dir := filepath.Join(mnt, "store")
			var a fates
			for range numberOf("LOGSTORE_POWER_CUTS", 4) {
				workAndEnd(t, dir, &a, func(p *os.Process) {
					a.over.Store(hostTime())
					cutPower(t, mnt)
					time.Sleep(5 * time.Millisecond)
					_ = p.Kill()
				})
				unmount(t, mnt)
				// As long as another name space of mounts has the file system that was cut off, which a
				// program of the machine may just have copied, it is that which is mounted again.
				for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
					mounted = false
					run("mount", "-o", "loop", image, mnt)
					mounted = true
					if _, err := os.ReadDir(mnt); err == nil {
						break
					}
					unmount(t, mnt)
					if time.Since(begin) > 2*time.Minute {
						mounted = false
						t.Skip("somebody else keeps the file system that was cut off")
					}
				}
				verifyVictim(t, dir, true, &a)
			}
			unmount(t, mnt)
			mounted = false
		})
	}
}

// unmount waits until the kernel has cleaned up behind the victim.
func unmount(t *testing.T, mnt string) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		out, err := exec.Command("umount", mnt).CombinedOutput()
		if err == nil {
			return
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("umount %s: %s", mnt, out)
		}
	}
}

func cutPower(t *testing.T, mnt string) {
	f, err := os.Open(mnt)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	if err := unix.IoctlSetPointerInt(int(f.Fd()), fsShutdown, noLogFlush); err != nil {
		t.Error(err)
	}
}

// What a victim hears after the cut of the power has begun is no promise; what it says that it
// tries still counts.
func TestLateAcknowledgements(t *testing.T) {
	var a fates
	a.over.Store(100)
	for _, line := range []string{"a 50 0 7 1", "t 60 1 8", "c 99 1 8", "a 100 0 9 1", "t 120 2 11",
		"c 130 2 11", "a 140 3 12 1"} {
		a.note(line)
	}
	if f := a.files; f[0].durable != 7 || f[1].cut != 8 || f[2].tried != 11 || f[2].cut != 0 ||
		f[3].durable != 0 || a.from != 12 {
		t.Errorf("%+v, issued up to %d", f, a.from)
	}
}
