package mount

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// local is a folder of the disk that all systems use, or an ext4 in a file on it where that is not
// ext4.
type local struct {
	dir  string
	loop bool
}

// loopBytes is how large the ext4 in a file is; it is sparse.
const loopBytes = 16 << 30

// StartLocal is the Starter of it.
func StartLocal(note func(string)) Starter {
	return Starter{Name: Local, Start: func(ctx context.Context, dir string) (System, error) {
		l := &local{dir: filepath.Join(dir, "mnt")}
		if err := os.Mkdir(l.dir, 0o755); err != nil {
			return nil, err
		}
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil {
			return nil, err
		}
		if st.Type == unix.EXT4_SUPER_MAGIC {
			return l, nil
		}
		if os.Geteuid() != 0 {
			note("local is no ext4 here, and only root can mount one; it is what the folder lies on")
			return l, nil
		}
		note("local is an ext4 in a file: the folder does not lie on one")
		return l, l.mountLoop(ctx, filepath.Join(dir, "ext4"))
	}}
}

func (l *local) mountLoop(ctx context.Context, image string) error {
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(image, loopBytes); err != nil {
		return err
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-F", image},
		{"mount", "-o", "loop", image, l.dir}} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return errs.Newf(errs.IO, args[0], image, "%v: %s", err, out)
		}
	}
	l.loop = true
	return nil
}

func (l *local) Name() string { return Local }

func (l *local) Dir() string { return l.dir }

func (l *local) Pids() []int { return nil } // it is the kernel

// Cold has nothing of its own to forget; a mount that is made anew would also forget where free
// space is, which no caller has asked for.
func (l *local) Cold(context.Context, bool) error { return nil }

func (l *local) Close() error {
	if l.loop {
		return unmount(l.dir)
	}
	return nil
}
