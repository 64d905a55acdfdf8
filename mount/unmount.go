package mount

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"golang.org/x/sys/unix"
)

// How long Unmount waits: for programs to leave, for their data to be written, and for the end of
// requests after the mount was taken from them.
const (
	leaveMax = 2 * time.Second
	flushMax = 3 * time.Second
	lastMax  = 5 * time.Second
)

// Unmount takes the file system away. If programs still use it after a short while, what they have
// written is flushed and the mount is taken from them: nobody finds it any more, and their requests
// fail. It returns when all files are closed at the servers. Unmounting twice is allowed.
func (m *Mounted) Unmount() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.served:
		return nil
	default:
	}
	if err := m.leave(); err != nil {
		m.opts.Logger.Warn("programs use the mount; it is taken from them", "dir", m.dir)
		flush(m.dir)
		if err := unmount(m.dir, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
			return err
		}
		m.end()
	}
	select {
	case <-m.served:
		return nil
	case <-time.After(lastMax):
		// It is gone here, and lives on in another name space of mounts, which has a copy of it.
		m.end()
	}
	if m.endsWithin(lastMax) {
		return nil
	}
	// Another mount name space has a copy of it, as containers do: it is taken from these, too.
	m.opts.Logger.Warn("the mount lives on elsewhere; it is ended there, too", "dir", m.dir)
	m.bridge.leave()
	abort(m.conn)
	if m.endsWithin(lastMax) {
		return nil
	}
	return errs.Newf(errs.Busy, "unmount", m.dir,
		"it is detached, but programs keep it alive until they close their files")
}

// endsWithin waits for the end of the mount.
func (m *Mounted) endsWithin(limit time.Duration) bool {
	select {
	case <-m.served:
		return true
	case <-time.After(limit):
		return false
	}
}

// end has all requests fail.
func (m *Mounted) end() {
	m.bridge.leave()
	abort(m.conn)
}

// Leave gives up what requests wait for: somebody else has taken the mount from programs.
func (m *Mounted) Leave() { m.bridge.leave() }

// flush writes back mapped memory, for as long as that may take.
func flush(dir string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f, err := os.Open(dir)
		if err != nil {
			return
		}
		_ = unix.Syncfs(int(f.Fd())) // errors reach those who wrote
		_ = f.Close()
	}()
	select {
	case <-done:
	case <-time.After(flushMax):
	}
}

// leave tries a plain unmount for a while.
func (m *Mounted) leave() error {
	var err error
	for began := time.Now(); time.Since(began) < leaveMax; time.Sleep(20 * time.Millisecond) {
		if err = unmount(m.dir, 0); err == nil {
			return nil
		}
	}
	return err
}

// detach unmounts lazily.
func detach(dir string) error { return unmount(dir, unix.MNT_DETACH) }

// unmount asks the kernel, and fusermount3 where that needs a right that we lack.
func unmount(dir string, flags int) error {
	err := unix.Unmount(dir, flags|unix.UMOUNT_NOFOLLOW)
	if err == nil || errors.Is(err, unix.EINVAL) {
		return nil // EINVAL: nothing is mounted there
	}
	if errors.Is(err, unix.EPERM) {
		arg := "-u"
		if flags&unix.MNT_DETACH != 0 {
			arg = "-uz"
		}
		out, ferr := exec.Command(fusermount(), arg, "--", dir).CombinedOutput()
		if ferr == nil {
			return nil
		}
		err = fmt.Errorf("%w; fusermount3: %w: %s", err, ferr, out)
	}
	return errs.New(errs.KindOf(err), "unmount", dir, err)
}

// fusermount is where fusermount3 is. mount(8) starts its helpers without a path to look in.
func fusermount() string {
	const name = "fusermount3"
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, dir := range []string{"/usr/bin", "/bin", "/usr/local/bin"} {
		if path := filepath.Join(dir, name); unix.Access(path, unix.X_OK) == nil {
			return path
		}
	}
	return name
}

// abort makes the kernel fail all requests of a connection. A forced unmount does that too, but
// needs root; this needs the control file system, and only that the mount is ours.
func abort(conn uint32) {
	if conn == 0 {
		return
	}
	name := fmt.Sprintf("%d/abort", conn)
	if os.WriteFile("/sys/fs/fuse/connections/"+name, []byte("1"), 0) != nil {
		abortUnmounted(name)
	}
}

// abortUnmounted is abort where nobody has mounted the kernel's list of connections, as on hosts
// and in containers without systemd: it is mounted for a moment, where nobody sees it.
func abortUnmounted(name string) {
	control, err := unix.Fsopen("fusectl", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return // only root can
	}
	defer unix.Close(control)
	if unix.FsconfigCreate(control) != nil {
		return
	}
	list, err := unix.Fsmount(control, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(list)
	fd, err := unix.Openat(list, name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	_, _ = unix.Write(fd, []byte("1")) // a connection that is gone needs no abort
	_ = unix.Close(fd)
}

// cleanStale removes mounts at dir whose server is gone. There may be several, one over the other.
func cleanStale(dir string, l *slog.Logger) error {
	for range 16 {
		var st unix.Stat_t
		err := unix.Stat(dir, &st)
		switch {
		case err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR:
			return errs.New(errs.NotDir, "mount", dir, nil)
		case err == nil:
			return nil
		case !errors.Is(err, unix.ENOTCONN) && !errors.Is(err, unix.ECONNABORTED):
			return errs.Wrap("mount", dir, err)
		}
		l.Warn("removing a mount whose server is gone", "dir", dir)
		if err := detach(dir); err != nil {
			return err
		}
	}
	return errs.Newf(errs.Busy, "mount", dir, "dead mounts keep appearing")
}

// setReadAhead tells the kernel how far to read ahead. The FUSE protocol cannot ask for more than
// the kernel's default; the device's entry in sysfs can.
func (m *Mounted) setReadAhead() {
	var st unix.Stat_t
	if unix.Stat(m.dir, &st) != nil {
		return
	}
	m.conn = unix.Minor(st.Dev)
	m.readAheadOf(fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
}

// readAheadOf is setReadAhead for a device that is known.
func (m *Mounted) readAheadOf(device string) {
	path := fmt.Sprintf("/sys/class/bdi/%s/read_ahead_kb", device)
	kb := fmt.Sprintf("%d", m.opts.ReadAhead>>10)
	if err := os.WriteFile(path, []byte(kb), 0); err != nil {
		m.opts.Logger.Info("readahead stays at the kernel's default", "err", err)
	}
}
