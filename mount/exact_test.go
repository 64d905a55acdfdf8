package mount

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// TestNamesAreExact: what one mount does to names and attributes the other one sees when the first
// has its answer, though it has just looked, and its kernel remembers what it saw.
func TestNamesAreExact(t *testing.T) {
	c := newCluster(t, 1)
	a, b := c.mount(Options{}).Dir(), c.mount(Options{}).Dir()
	at := func(dir, name string) string { return filepath.Join(dir, "d", name) }
	must(t, os.Mkdir(filepath.Join(a, "d"), 0o777))
	must(t, os.WriteFile(at(a, "new"), []byte("new"), 0o600))
	for i := range 20 {
		name := fmt.Sprint("f", i)
		if _, err := os.Stat(at(b, name)); !os.IsNotExist(err) {
			t.Fatalf("before it is made: %v", err)
		}
		must(t, os.WriteFile(at(a, name), []byte("old"), 0o600))
		if _, err := os.Stat(at(b, name)); err != nil {
			t.Fatalf("after it was made: %v", err)
		}
		must(t, os.Chmod(at(a, name), 0o640))
		if info, err := os.Stat(at(b, name)); err != nil || info.Mode().Perm() != 0o640 {
			t.Fatalf("after chmod: %v %v", info.Mode(), err)
		}
		must(t, os.Rename(at(a, name), at(a, "moved")))
		if _, err := os.ReadFile(at(b, name)); !os.IsNotExist(err) {
			t.Fatalf("after it was moved away: %v", err)
		}
		if got, err := os.ReadFile(at(b, "moved")); err != nil || string(got) != "old" {
			t.Fatalf("where it was moved: %q %v", got, err)
		}
		must(t, os.Link(at(a, "new"), at(a, "other")))
		must(t, os.Rename(at(a, "other"), at(a, "moved")))
		if got, err := os.ReadFile(at(b, "moved")); err != nil || string(got) != "new" {
			t.Fatalf("after another took its name: %q %v", got, err)
		}
		must(t, os.Remove(at(a, "moved")))
		if _, err := os.Stat(at(b, "moved")); !os.IsNotExist(err) {
			t.Fatalf("after it was removed: %v", err)
		}
		a, b = b, a
	}
}

// TestWorkingDirectoryStays: a program whose working directory is in a directory that another mount
// changes notices nothing of it.
func TestWorkingDirectoryStays(t *testing.T) {
	c := newCluster(t, 1)
	a, b := c.mount(Options{}).Dir(), c.mount(Options{}).Dir()
	must(t, os.MkdirAll(filepath.Join(a, "d", "w"), 0o777))
	inside, err := os.Open(filepath.Join(b, "d", "w"))
	must(t, err)
	defer inside.Close()
	for i := range 10 {
		must(t, os.WriteFile(filepath.Join(a, "d", fmt.Sprint(i)), nil, 0o600))
		place, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", inside.Fd()))
		if want := filepath.Join(b, "d", "w"); err != nil || place != want {
			t.Fatalf("it is at %s (%v), not at %s", place, err, want)
		}
		if _, err := os.Stat(filepath.Join(b, "d", "w")); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMountsThatFightGoOn: several programs on two mounts make, look at and remove names in one
// directory. Each sees its own, and none waits for long: whoever gives a directory back while a
// program changes it must not wait for that.
func TestMountsThatFightGoOn(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := newCluster(t, 1)
	mounts := []string{c.mount(Options{}).Dir(), c.mount(Options{}).Dir()}
	must(t, os.Mkdir(filepath.Join(mounts[0], "d"), 0o777))
	end := time.Now().Add(3 * time.Second)
	var wg sync.WaitGroup
	var mu sync.Mutex
	rounds, longest := 0, time.Duration(0)
	for w := range 6 {
		rng := rand.New(rand.NewPCG(seed, uint64(w)))
		wg.Go(func() {
			for i := 0; time.Now().Before(end); i++ {
				began := time.Now()
				path := filepath.Join(mounts[w%2], "d", fmt.Sprint(w, "-", rng.IntN(4)))
				if err := os.WriteFile(path, []byte(path), 0o600); err != nil {
					t.Error(err)
					return
				}
				other := filepath.Join(mounts[(w+1)%2], "d", filepath.Base(path))
				if got, err := os.ReadFile(other); err != nil || string(got) != path {
					t.Errorf("%s by the other mount: %q %v", path, got, err)
					return
				}
				if err := os.Remove(other); err != nil {
					t.Error(err)
					return
				}
				if _, err := os.Stat(path); !os.IsNotExist(err) {
					t.Errorf("%s was removed by the other mount: %v", path, err)
					return
				}
				mu.Lock()
				rounds, longest = rounds+1, max(longest, time.Since(began))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("%d rounds, the longest took %v", rounds, longest)
}
