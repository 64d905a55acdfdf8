package mount

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"golang.org/x/sys/unix"
)

// TestSyncedWrites: a write with O_DSYNC or O_SYNC has reached stable storage when it returns,
// whether the kernel keeps pages of the file or not; other writes do not wait for that.
func TestSyncedWrites(t *testing.T) {
	c := newCluster(t, 2)
	dir := c.mount(Options{}).Dir()
	fail := errs.New(errs.IO, "disk", "", nil)
	for i, test := range []struct {
		flags int
		waits bool
	}{
		{os.O_APPEND, false}, {0, false}, {os.O_APPEND | unix.O_DSYNC, true},
		{os.O_APPEND | unix.O_SYNC, true}, {unix.O_DSYNC, true}, {unix.O_SYNC, true},
	} {
		p := filepath.Join(dir, fmt.Sprint(i))
		must(t, os.WriteFile(p, pattern(100<<10, 1), 0o644)) // not small: I/O servers have it
		f := open(t, p, os.O_WRONLY|test.flags)
		c.data.sync.Store(&fail)
		_, err := f.Write(pattern(5000, 2))
		c.data.sync.Store(nil)
		if test.waits {
			want(t, err, unix.EIO)
			_, err = f.Write(pattern(5000, 2))
		}
		must(t, err)
		must(t, f.Close())
	}
}
