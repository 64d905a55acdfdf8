package systest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// setClock gives a running process another wall clock, by so many seconds, as if it ran on another
// host: the function that the kernel has mapped into it to tell the time (the vDSO's) is replaced
// by one that asks the kernel and adds to the answer. Other clocks stay as they are. vmtest/attach
// sets the clock of a whole host.
func setClock(t *testing.T, pid int, seconds int32) {
	t.Helper()
	skipClock(t)
	begin, end := mapped(t, pid, "[vdso]")
	stopOutside(t, pid, begin, end)
	err := patchClock(pid, seconds)
	must(t, syscall.Kill(pid, syscall.SIGCONT))
	if err != nil {
		t.Skipf("this kernel lets nobody change a mapped function: %v", err)
	}
}

// skipClock skips a test where other clocks cannot be made.
func skipClock(t *testing.T) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the code for another clock is known for x86-64 only")
	}
}

// patchClock replaces the function of a process that has stopped.
func patchClock(pid int, seconds int32) error {
	code := []byte{0xb8, 0xe4, 0, 0, 0, // mov eax, 228 (clock_gettime)
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi: the wall clock is number 0
		0x75, 0x07, // jne to ret
		0x48, 0x81, 0x06, 0, 0, 0, 0, // add qword [rsi], seconds
		0xc3} // ret
	binary.LittleEndian.PutUint32(code[len(code)-5:], uint32(seconds))
	begin, end, err := findMapped(pid, "[vdso]")
	if err != nil {
		return err
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	image := make([]byte, end-begin)
	if _, err = mem.ReadAt(image, begin); err != nil {
		return err
	}
	object, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return err
	}
	symbols, err := object.DynamicSymbols()
	if err != nil {
		return err
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" {
			_, err := mem.WriteAt(code, begin+int64(s.Value))
			return err
		}
	}
	return errors.New("the vDSO has no clock_gettime")
}

// mapped is where something is in the memory of a process.
func mapped(t *testing.T, pid int, what string) (begin, end int64) {
	t.Helper()
	begin, end, err := findMapped(pid, what)
	if err != nil {
		t.Skip(err)
	}
	return begin, end
}

func findMapped(pid int, what string) (begin, end int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasSuffix(strings.TrimSpace(line), what) {
			_, err := fmt.Sscanf(line, "%x-%x", &begin, &end)
			return begin, end, err
		}
	}
	return 0, 0, fmt.Errorf("process %d has no %s", pid, what)
}

// stopOutside stops a process while none of its threads is in a piece of its code.
func stopOutside(t *testing.T, pid int, begin, end int64) {
	t.Helper()
	for range 200 {
		must(t, syscall.Kill(pid, syscall.SIGSTOP))
		if threadsOutside(pid, begin, end) {
			return
		}
		must(t, syscall.Kill(pid, syscall.SIGCONT))
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("process %d tells the time all the time", pid)
}

// threadsOutside waits until all threads have stopped and looks where.
func threadsOutside(pid int, begin, end int64) bool {
	for range 200 {
		states, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
		stopped, outside := 0, 0
		for _, file := range states {
			text, err := os.ReadFile(file)
			if err != nil || strings.HasPrefix(string(text), "running") {
				continue
			}
			stopped++
			fields := strings.Fields(string(text))
			pc, err := strconv.ParseInt(fields[len(fields)-1], 0, 64)
			if err == nil && (pc < begin || pc >= end) {
				outside++
			}
		}
		if stopped == len(states) && stopped > 0 {
			return outside == stopped
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

// serving is the processes that serve a mount: its own, and those that it has started.
func serving(t *testing.T, pid int) []int {
	t.Helper()
	pids := []int{pid}
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for child := range strings.FieldsSeq(string(text)) {
		n, err := strconv.Atoi(child)
		must(t, err)
		pids = append(pids, serving(t, n)...)
	}
	return pids
}

// TestClocksDifferByAnHour: the clock of one mount is an hour ahead, that of an I/O server an hour
// ahead, too, that of the metadata service an hour behind. Data, names, leases, locks, times that
// are set and rights that run out do not depend on clocks. The time of a change is the writer's,
// and one that lies ahead does not stay when others change the file.
func TestClocksDifferByAnHour(t *testing.T) {
	t.Parallel()
	const hour = 3600
	// Rights on data last for some seconds only, so that they are renewed within the test.
	c := startCluster(t, clusterOptions{iods: 2, mount: true,
		extra: []string{"--session-time", "4s", "--lease-time", "2s"}})
	ahead, pid := c.mountProcess(t)
	mounts := [2]string{c.mnt, ahead}
	held, err := os.OpenFile(filepath.Join(ahead, "held"), os.O_CREATE|os.O_RDWR, 0o644)
	must(t, err)
	defer held.Close()
	_, err = held.Write(record(1, 1, 3<<20))
	must(t, err)
	must(t, held.Sync())
	for _, p := range serving(t, pid) {
		setClock(t, p, hour)
	}
	setClock(t, c.pidOf(t, "meta"), -hour)
	setClock(t, c.pidOf(t, "iod1"), hour)

	began, round := time.Now(), 0
	for ; time.Since(began) < soak(9*time.Second, time.Minute); round++ {
		one, two := mounts[round%2], mounts[1-round%2]
		for _, size := range []int{1000, 300_000} { // the same size each time: only the data differs
			name := fmt.Sprint("f", size)
			want := record(uint64(round), size, size)
			must(t, os.WriteFile(filepath.Join(one, name), want, 0o644))
			sameTo(t, filepath.Join(two, name), want)
			must(t, os.WriteFile(filepath.Join(one, name+".new"), want, 0o644))
			must(t, os.Rename(filepath.Join(one, name+".new"), filepath.Join(one, name+".in")))
			sameTo(t, filepath.Join(two, name+".in"), want)
			off := time.Until(writtenAt(t, filepath.Join(two, name))).Round(time.Minute)
			if round%2 == 1 && off != time.Hour || round%2 == 0 && off != 0 {
				t.Errorf("round %d: written %v from now by %s", round, off, one)
			}
		}
		set := time.Unix(1_000_000_000+int64(round), 0)
		must(t, os.Chtimes(filepath.Join(one, "f1000"), set, set))
		if got := writtenAt(t, filepath.Join(two, "f1000")); !got.Equal(set) {
			t.Errorf("round %d: the time was set to %v and is %v", round, set, got)
		}
		f, err := os.OpenFile(filepath.Join(two, "f1000"), os.O_RDWR, 0)
		must(t, err)
		must(t, lockFile(f, unix.F_WRLCK, 0))
		must(t, f.Close())
		time.Sleep(300 * time.Millisecond)
	}
	t.Logf("%d rounds in %v", round, time.Since(began))
	got := make([]byte, 3<<20)
	_, err = held.ReadAt(got, 0)
	must(t, err)
	if !bytes.Equal(got, record(1, 1, 3<<20)) {
		t.Error("a file that was open all the time has other bytes")
	}
	must(t, held.Sync())
}

// sameTo wants a file to hold something.
func sameTo(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s: %d of %d bytes, %v: %s", path, len(got), len(want), err, difference(got, want))
	}
}

func writtenAt(t *testing.T, path string) time.Time {
	t.Helper()
	st, err := os.Stat(path)
	must(t, err)
	return st.ModTime()
}
