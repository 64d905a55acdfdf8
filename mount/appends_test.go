package mount

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// TestAppendsShowNoZeroes: programs on several mounts append lines to one file. Whoever reads it
// meanwhile, on any mount, sees whole lines, and nothing that was not written.
func TestAppendsShowNoZeroes(t *testing.T) {
	c := newCluster(t, 2)
	dirs := []string{c.mount(Options{}).Dir(), c.mount(Options{}).Dir(), c.mount(Options{}).Dir()}
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	for w := range 3 {
		f, err := os.OpenFile(filepath.Join(dirs[w], "f"),
			os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		must(t, err)
		writers.Go(func() {
			for i := range 150 {
				if _, err := fmt.Fprintf(f, "line %d of writer %d\n", i, w); err != nil {
					t.Error(err)
					return
				}
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	for r := range 3 {
		readers.Go(func() {
			for looks := 0; ; looks++ {
				select {
				case <-stop:
					t.Log(looks, "looks")
					return
				default:
				}
				got, err := os.ReadFile(filepath.Join(dirs[r], "f"))
				if err != nil {
					t.Error(err)
					return
				}
				if at := bytes.IndexByte(got, 0); at >= 0 {
					t.Errorf("%d bytes, a zero at %d", len(got), at)
					return
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
}
