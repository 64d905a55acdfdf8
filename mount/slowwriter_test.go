package mount

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// TestSlowWriter: what a writer has written that never pauses, and never fills a chunk, is seen
// elsewhere soon.
func TestSlowWriter(t *testing.T) {
	c := newCluster(t, 2)
	m := c.mount(Options{})
	f := open(t, filepath.Join(m.Dir(), "f"), os.O_CREATE|os.O_WRONLY)
	const first, each = 100 << 10, 10
	_, err := f.Write(pattern(first, 1))
	must(t, err)
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := make(chan struct{})
	defer close(stop)
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			if _, err := f.Write(pattern(each, 2)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	other := filepath.Join(c.mount(Options{}).Dir(), "f")
	var had int64 = first
	for range 3 {
		began := time.Now()
		must(t, waitFor(func() bool {
			st, err := os.Stat(other)
			return err == nil && st.Size() > had+30*each || time.Since(began) > time.Minute/4
		}))
		st, err := os.Stat(other)
		must(t, err)
		if st.Size() <= had {
			t.Fatalf("%d bytes are seen elsewhere, not more than before", st.Size())
		}
		had = st.Size()
	}
}
