package systest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMountsFightForAFile: programs on two mounts overwrite, append to, replace, lock and read one
// file, all at once, for some seconds; with SLUICE_SOAK for a minute. Nobody sees an error or bytes
// that nobody wrote, every program gets its turn, and none waits for long: leases go back and
// forth, but nobody starves.
func TestMountsFightForAFile(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{iods: 2, mount: true})
	mounts := [2]string{c.mnt, c.startMount(t)}
	for _, size := range []int{100, 40_000} { // with the metadata, and at the I/O servers
		f := &fight{mounts: mounts, name: fmt.Sprint("fight", size), size: size}
		must(t, os.WriteFile(filepath.Join(mounts[0], f.name), f.text('a'), 0o644))
		must(t, os.WriteFile(filepath.Join(mounts[0], f.name+".lock"), nil, 0o644))
		f.run(t, soak(4*time.Second, time.Minute))
	}
}

// fight is programs that want one file.
type fight struct {
	mounts [2]string
	name   string
	size   int

	mu      sync.Mutex
	rounds  [2]map[string]int
	longest time.Duration
	stale   int
}

// text is what a program writes: one letter, so that a reader can tell whether it is one's.
func (f *fight) text(letter byte) []byte { return bytes.Repeat([]byte{letter}, f.size) }

func (f *fight) run(t *testing.T, long time.Duration) {
	t.Helper()
	f.rounds = [2]map[string]int{{}, {}}
	programs := map[string]func(mnt string, i int) error{
		"overwrite": f.overwrite, "replace": f.replace, "read": f.read, "append": f.append,
		"locked": f.locked,
	}
	end := time.Now().Add(long)
	var wg sync.WaitGroup
	for m, mnt := range f.mounts {
		for name, do := range programs {
			wg.Go(func() {
				for i := 0; time.Now().Before(end); i++ {
					took, err := timed(func() error { return f.insist(func() error { return do(mnt, i) }) })
					if err != nil {
						t.Errorf("%s on mount %d, round %d: %v", name, m, i, err)
						return
					}
					f.mu.Lock()
					f.rounds[m][name]++
					f.longest = max(f.longest, took)
					f.mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	t.Logf("%d bytes: %v and %v, the longest took %v, %d opened a file that was just replaced", f.size,
		f.rounds[0], f.rounds[1], f.longest, f.stale)
	for name := range programs {
		a, b := f.rounds[0][name], f.rounds[1][name]
		if least, both := min(a, b), a+b; least == 0 || least < both/50 {
			t.Errorf("%s: %d rounds on one mount, %d on the other", name, a, b)
		}
	}
	// A lease that nobody gives back would cost five seconds each time.
	if limit := 5*time.Second + busyMax; f.longest > limit {
		t.Errorf("somebody waited for %v", f.longest)
	}
}

// insist repeats what ended with ESTALE. A file whose only name another mount gives to another file
// is gone: an open between the kernel's lookup and that finds nothing. The kernel looks the name up
// again, once, and where that fails in the same way tells the program.
func (f *fight) insist(do func() error) (err error) {
	for range 100 {
		if err = do(); !errors.Is(err, unix.ESTALE) {
			return err
		}
		f.mu.Lock()
		f.stale++
		f.mu.Unlock()
	}
	return err
}

// overwrite writes all of the file in place.
func (f *fight) overwrite(mnt string, i int) error {
	w, err := os.OpenFile(filepath.Join(mnt, f.name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = w.WriteAt(f.text(byte('a'+i%26)), 0)
	if e := w.Close(); err == nil {
		err = e
	}
	return err
}

// replace puts another file in its place.
func (f *fight) replace(mnt string, i int) error {
	beside := filepath.Join(mnt, fmt.Sprintf("%s.%s", f.name, filepath.Base(filepath.Dir(mnt))))
	if err := os.WriteFile(beside, f.text(byte('a'+i%26)), 0o644); err != nil {
		return err
	}
	return os.Rename(beside, filepath.Join(mnt, f.name))
}

// read wants letters only: appended ones are capitals, and an append that is under way may be
// zeroes that another one has followed.
func (f *fight) read(mnt string, _ int) error {
	data, err := os.ReadFile(filepath.Join(mnt, f.name))
	for i, c := range data {
		if !(c >= 'a' && c <= 'z' || i >= f.size && (c == 0 || c >= 'A' && c <= 'Z')) {
			return fmt.Errorf("byte %d of %d is %q", i, len(data), c)
		}
	}
	return err
}

func (f *fight) append(mnt string, i int) error {
	return putFile(filepath.Join(mnt, f.name), os.O_APPEND, bytes.Repeat([]byte{byte('A' + i%26)}, 50))
}

// locked takes a lock that all want, looks and lets go.
func (f *fight) locked(mnt string, _ int) error {
	l, err := os.OpenFile(filepath.Join(mnt, f.name+".lock"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer l.Close()
	if err := lockFile(l, unix.F_WRLCK, 0); err != nil {
		return err
	}
	_, err = os.Stat(filepath.Join(mnt, f.name))
	return err
}
