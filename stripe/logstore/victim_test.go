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
	"testing"
	"time"

	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
	"golang.org/x/sys/unix"
)

// victimEnv names the folder in which a child process works until it is killed or its disk is gone.
const victimEnv = "LOGSTORE_VICTIM"

const victimFiles = 8

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

// runVictim turns the test binary into the victim: each write replaces a file by its next version,
// as one record. It says on standard output what was acknowledged: "file version durability".
func runVictim() {
	dir := os.Getenv(victimEnv)
	if dir == "" {
		return
	}
	s, err := OpenPaths(victimPaths(dir))
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	ctx := context.Background()
	var versions [victimFiles]uint64
	for file := range versions {
		head := make([]byte, 8)
		if err := s.ReadAt(ctx, victimID(file), [][]byte{head}, 0); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		versions[file] = binary.LittleEndian.Uint64(head)
	}
	fmt.Println("ready 0 0")
	for {
		file := rand.IntN(victimFiles)
		versions[file]++
		d := stripe.Durability(rand.IntN(2))
		err := s.WriteAt(ctx, victimID(file), [][]byte{victimData(file, versions[file])}, 0,
			wire.Stamp{}, d)
		if err != nil {
			time.Sleep(time.Hour) // the disk is gone: whoever cut it off ends us
		}
		fmt.Println(file, versions[file], d)
	}
}

// acks is what a victim has said.
type acks struct {
	any, durable [victimFiles]uint64
}

// workAndEnd lets a victim work on the folder for a while, ends it, and returns what it had said.
func workAndEnd(t *testing.T, dir string, a *acks, end func(victim *os.Process)) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run", "^$")
	cmd.Env = append(os.Environ(), victimEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready 0 0" {
		t.Errorf("the victim says %q", lines.Text())
	}
	time.AfterFunc(time.Duration(20+rand.IntN(120))*time.Millisecond, func() { end(cmd.Process) })
	for lines.Scan() {
		var file, d int
		var v uint64
		if _, err := fmt.Sscan(lines.Text(), &file, &v, &d); err != nil {
			continue // cut off in the middle of a line
		}
		a.any[file] = v
		if d != 0 {
			// One log: what is durable makes durable all that came before.
			a.durable = a.any
		}
	}
	_ = cmd.Wait()
}

// verifyVictim holds the store against what was said: each file is one version, not older than the
// last that must be there and at most one newer than the last that was acknowledged.
func verifyVictim(t *testing.T, dir string, least [victimFiles]uint64, a *acks) {
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
		v := binary.LittleEndian.Uint64(p)
		if v < least[file] || v > a.any[file]+1 {
			t.Fatalf("file %d is at version %d, durable was %d, acknowledged %d", file, v,
				least[file], a.any[file])
		}
		if v > 0 && !bytes.Equal(p, victimData(file, v)) {
			t.Fatalf("file %d is a mixture", file)
		}
		a.any[file], a.durable[file] = v, v
	}
}

// TestKill kills a writing process at random moments. The disk goes on, so that everything that was
// acknowledged is there, volatile or not.
func TestKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	var a acks
	for range numberOf("LOGSTORE_KILLS", 6) {
		workAndEnd(t, dir, &a, func(p *os.Process) { _ = p.Kill() })
		verifyVictim(t, dir, a.any, &a)
	}
}

// fsShutdown is FS_IOC_SHUTDOWN; without flushing the journal it is the nearest to a power cut that
// a file system offers.
const (
	fsShutdown = 0x8004587d
	noLogFlush = 2
)

// TestPower shuts the file system down under a writing process.
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
			var a acks
			for range numberOf("LOGSTORE_POWER_CUTS", 4) {
				workAndEnd(t, dir, &a, func(p *os.Process) {
					cutPower(t, mnt)
					time.Sleep(5 * time.Millisecond)
					_ = p.Kill()
				})
				unmount(t, mnt)
				mounted = false
				run("mount", "-o", "loop", image, mnt)
				mounted = true
				verifyVictim(t, dir, a.durable, &a)
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
