package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

func newUmount() *cobra.Command {
	var lazy bool
	cmd := &cobra.Command{
		Use:   "umount DIR",
		Short: "Unmount a file system",
		Long: `Unmounts what sluice mount has mounted at a folder: what programs have written is told and
sent first, then the process of the mount ends. While programs use it that is refused, unless --lazy
is given: then it is out of sight at once, and ends with the last of them.`,
		Example: "  sluice umount ./mnt\n  sluice umount --lazy ./mnt",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			mounted, err := isMountpoint(dir)
			if err != nil {
				return err
			}
			if !mounted {
				return refuse("nothing is mounted at "+args[0], "See what is: findmnt -t fuse.sluice")
			}
			return unmountDir(dir, lazy)
		},
	}
	cmd.ValidArgsFunction = completeFolders
	cmd.Flags().BoolVar(&lazy, "lazy", false, "take it out of sight now, even while programs use it")
	return cmd
}

// unmountDir asks the kernel, or fusermount3 where this user may not.
func unmountDir(dir string, lazy bool) error {
	flags, arg := unix.UMOUNT_NOFOLLOW, "-u"
	if lazy {
		flags, arg = flags|unix.MNT_DETACH, "-uz"
	}
	err := unix.Unmount(dir, flags)
	if errors.Is(err, unix.EPERM) {
		out, runErr := exec.Command("fusermount3", arg, "--", dir).CombinedOutput()
		if runErr == nil {
			return nil
		}
		return errs.Newf(errs.Perm, "umount", dir, "%v: %s", runErr, strings.TrimSpace(string(out)))
	}
	if errors.Is(err, unix.EBUSY) {
		return hint(errs.New(errs.Busy, "umount", dir, err),
			"Programs use it: see which with fuser -vm %s, or add --lazy", dir)
	}
	return errs.Wrap("umount", dir, err)
}

// isDeadMount tells whether the server behind a mount is gone. It asks for the file system's room,
// which the kernel does not remember, unlike attributes; one that does not answer in time lives.
func isDeadMount(dir string) bool {
	answer := make(chan error, 1)
	go func() {
		var st unix.Statfs_t
		answer <- unix.Statfs(dir, &st)
	}()
	select {
	case err := <-answer:
		return errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNABORTED)
	case <-time.After(2 * time.Second):
		return false
	}
}

// isMountpoint reads the kernel's list: unlike stat(2), that never waits for the mount itself.
func isMountpoint(dir string) (bool, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return false, err
	}
	defer f.Close()
	// The kernel writes these four characters in octal.
	escape := strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`)
	want := escape.Replace(dir)
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 4 && fields[4] == want {
			return true, nil
		}
	}
	return false, lines.Err()
}
