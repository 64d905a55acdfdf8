package systest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	names      = 40
	smallBytes = 9 << 10 // at most; a name's file has from 0 bytes to so many
)

// nameWriter makes, replaces and removes small files in a folder of its own and knows what each
// name may hold. An operation that succeeded leaves one possibility; one that failed adds one: it
// may have happened all the same. Writers and checks take turns.
type nameWriter struct {
	mnt, dir string
	rng      *rand.Rand
	made     uint64            // numbers the contents, each of which is unique
	may      [names][]*content // never empty; nil stands for "no such file"
	syncs    bool              // the folder, too: what was not synced a full disk may undo
	done     atomic.Int64      // operations that succeeded
	mu       sync.Mutex
	failures map[string]int // and those that did not, by error
}

// content is what a small file holds.
type content struct{ number uint64 }

func (s *content) bytes() []byte {
	if s == nil {
		return nil
	}
	return record(s.number, 0, smallBytes)[:s.number*37%smallBytes]
}

func (s *content) String() string {
	if s == nil {
		return "no file"
	}
	return fmt.Sprintf("number %d (%d bytes)", s.number, len(s.bytes()))
}

func newNameWriter(t *testing.T, c *cluster, name string, seed uint64) *nameWriter {
	w := &nameWriter{mnt: c.mnt, dir: name, rng: rand.New(rand.NewPCG(seed, 3)),
		failures: map[string]int{}}
	must(t, os.Mkdir(filepath.Join(c.mnt, name), 0o755))
	for i := range w.may {
		w.may[i] = []*content{nil}
	}
	return w
}

func (w *nameWriter) run(t *testing.T, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		if err := w.step(); err != nil {
			w.mu.Lock()
			w.failures[cause(err)]++
			w.mu.Unlock()
			time.Sleep(20 * time.Millisecond)
			continue
		}
		w.done.Add(1)
	}
}

// cause is an error without the names of files.
func cause(err error) string {
	for next := err; next != nil; next = errors.Unwrap(next) {
		err = next
	}
	return err.Error()
}

func (w *nameWriter) step() error {
	root, err := openMount(w.mnt)
	if err != nil {
		return err
	}
	defer root.Close()
	i := w.rng.IntN(names)
	var next *content
	if w.rng.IntN(3) > 0 {
		w.made++
		next = &content{w.made}
		err = w.put(root, i, next)
	} else {
		err = root.Remove(w.path(i))
		if errors.Is(err, fs.ErrNotExist) && slices.Contains(w.may[i], nil) {
			err = nil
		}
	}
	if err == nil && w.syncs {
		err = w.sync(root)
	}
	if err == nil {
		w.may[i] = []*content{next}
	} else {
		w.may[i] = append(w.may[i], next)
	}
	return err
}

// sync has the service have what the folder's names are.
func (w *nameWriter) sync(root *os.Root) error {
	d, err := root.Open(w.dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if e := d.Close(); err == nil {
		err = e
	}
	return err
}

func (w *nameWriter) path(i int) string { return filepath.Join(w.dir, fmt.Sprintf("n%02d", i)) }

// put replaces a file as careful programs do: write beside it, sync, rename.
func (w *nameWriter) put(root *os.Root, i int, s *content) error {
	beside := w.path(i) + ".new"
	f, err := root.Create(beside)
	if err != nil {
		return err
	}
	_, err = f.Write(s.bytes())
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = root.Rename(beside, w.path(i))
	}
	return err
}

// verify compares what every name holds, and that nothing else is there.
func (w *nameWriter) verify(t *testing.T, after string) {
	t.Helper()
	for i := range w.may {
		got, err := readPatiently(filepath.Join(w.mnt, w.path(i)))
		gone := errors.Is(err, fs.ErrNotExist)
		if err != nil && !gone {
			t.Errorf("after %s: %s cannot be read: %v", after, w.path(i), err)
			continue
		}
		at := slices.IndexFunc(w.may[i], func(s *content) bool {
			return gone == (s == nil) && bytes.Equal(got, s.bytes())
		})
		if at < 0 {
			t.Errorf("after %s: %s has %d bytes (gone: %v), which is none of %v", after, w.path(i),
				len(got), gone, w.may[i])
			continue
		}
		w.may[i] = []*content{w.may[i][at]}
	}
	w.verifyListing(t, after)
}

func (w *nameWriter) verifyListing(t *testing.T, after string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(w.mnt, w.dir))
	if err != nil {
		t.Errorf("after %s: %v", after, err)
		return
	}
	listed := map[string]bool{}
	for _, e := range entries {
		listed[e.Name()] = !strings.HasSuffix(e.Name(), ".new")
	}
	for i := range w.may {
		name := filepath.Base(w.path(i))
		if there := w.may[i][0] != nil; listed[name] != there {
			t.Errorf("after %s: %s is listed: %v, is there: %v", after, name, listed[name], there)
		}
		delete(listed, name)
	}
	for name, counts := range listed {
		if counts {
			t.Errorf("after %s: nobody made %s", after, name)
		}
	}
}
