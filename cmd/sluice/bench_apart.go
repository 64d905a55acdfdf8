package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// apartAddr is an address of the bench's own network: one of those that stand in documentation, so
// that it is nobody's.
const apartAddr = "192.0.2.1"

// runApart runs this command again in name spaces of its own, where root may: its mounts and its
// network are then seen by nobody else, and end with it, however it ends. (Its processes have none:
// Linux 6.18 was seen to stand still for minutes when many of them ended at once in two instances
// of /proc.) It returns false where that is not possible.
func runApart(cmd *cobra.Command, dir string) (ran bool, err error) {
	if os.Geteuid() != 0 {
		return false, nil
	}
	self, err := os.Executable()
	if err != nil {
		return false, nil
	}
	again := exec.CommandContext(cmd.Context(), self, append(os.Args[1:], "--inner", dir)...)
	again.Stdin, again.Stdout, again.Stderr = os.Stdin, cmd.OutOrStdout(), cmd.ErrOrStderr()
	again.Cancel = func() error { return again.Process.Signal(syscall.SIGTERM) }
	again.WaitDelay = 2 * time.Minute // in which it ends in order
	again.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET}
	runtime.LockOSThread() // the kernel signals the child when the thread that started it ends
	defer runtime.UnlockOSThread()
	if err := again.Start(); err != nil {
		return false, nil // a container's root, or a kernel without: it works here too
	}
	err = again.Wait()
	if cmd.Context().Err() != nil {
		return true, cmd.Context().Err()
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return true, &exitError{code: exit.ExitCode()} // it has said why
	}
	return true, hint(errs.Wrap("bench mount", "its own process", err),
		"Something has ended it: perhaps memory was short, see dmesg. Nothing of it is left")
}

// clearApart removes the folder of a bench in name spaces of its own: whoever made it may have been
// killed. Mounts that are left, of systems that hang, are taken away first.
func clearApart(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, "*", "mnt"))
	for _, mnt := range left {
		_ = unix.Unmount(mnt, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	_ = os.RemoveAll(dir)
}

// leaveOthers lets go of mounts of others that are served by a process, of which this name space
// has copies: they could not be unmounted while it is there.
func leaveOthers() {
	list, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(list)) {
		fields := strings.Fields(line)
		if len(fields) > 2 && (fields[2] == "fuse" || strings.HasPrefix(fields[2], "fuse.")) {
			_ = unix.Unmount(fields[1], unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) // of this name space only
		}
	}
}

// enterApart makes a process in new name spaces at home there, and returns an address of it that is
// not 127.0.0.1.
func enterApart() (reach string, err error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return "", errs.Wrap("bench mount", "own mounts", err)
	}
	leaveOthers()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	up, err := unix.NewIfreq("lo")
	if err != nil {
		return "", err
	}
	up.SetUint16(unix.IFF_UP | unix.IFF_RUNNING | unix.IFF_LOOPBACK)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, up); err != nil {
		return "", errs.Wrap("bench mount", "own loopback", err)
	}
	alias, err := unix.NewIfreq("lo:1")
	if err != nil {
		return "", err
	}
	if err := alias.SetInet4Addr([]byte{192, 0, 2, 1}); err != nil {
		return "", err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFADDR, alias); err != nil {
		return "", errs.Wrap("bench mount", apartAddr, err)
	}
	return apartAddr, nil
}
