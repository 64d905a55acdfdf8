package mount

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/sluice-storage/sluice/errs"
	"golang.org/x/sys/unix"
)

// Connection is a mounted file system that nobody serves yet: the kernel's side of one, held by a
// process that outlives those that serve it.
type Connection struct {
	Dir  string   // where it is mounted, absolute
	File *os.File // of /dev/fuse; as long as a process has it open the mount is there

	// Greeting is the first request of the kernel, which is sent once.
	Greeting []byte

	number uint32 // of the connection, the minor one of its device; 0: unknown
}

// Connect mounts a file system at dir, as Mount does, and reads the kernel's greeting.
func Connect(dir string, opts Options) (*Connection, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, errs.Wrap("mount", dir, err)
	}
	if err := cleanStale(dir, opts.Logger); err != nil {
		return nil, err
	}
	o := fuseOptions(&opts)
	f, err := mountDirectly(dir, o)
	if err != nil && os.Geteuid() != 0 {
		f, err = mountByHelper(dir, o)
	}
	if err != nil {
		return nil, errs.Newf(errs.KindOf(err), "mount", dir, "%w; is /dev/fuse there, and is the "+
			"caller root or fusermount3 installed?", err)
	}
	c := &Connection{Dir: dir, File: f, number: connectionOf(dir)}
	buf := make([]byte, 64<<10)
	n, err := retryRead(int(f.Fd()), buf)
	if err != nil {
		_ = detach(dir)
		_ = f.Close()
		return nil, errs.Wrap("mount", dir, err)
	}
	c.Greeting = buf[:n]
	return c, nil
}

// CanRepeat tells whether the kernel repeats requests that a process has taken and not answered: if
// not nobody can go on in its place.
func (c *Connection) CanRepeat() bool { return canRepeat(c.Greeting) }

func canRepeat(greeting []byte) bool {
	in, ok := greetingOf(greeting)
	return ok && in.Flags64()&fuse.CAP_HAS_RESEND != 0
}

// Unmount takes the file system away, as Mounted.Unmount: served tells whether a process answers at
// this moment; leave is called when programs have lost the mount.
func (c *Connection) Unmount(served bool, leave func()) error {
	var err error
	if served {
		m := Mounted{dir: c.Dir}
		if err = m.leave(); err == nil {
			return nil
		}
		flush(c.Dir)
	}
	err = unmount(c.Dir, unix.MNT_FORCE|unix.MNT_DETACH)
	leave()
	c.Abort()
	return err
}

// Abort makes the kernel fail all requests, those that wait too.
func (c *Connection) Abort() { abort(c.number) }

// Gone returns when the kernel has no use for the connection any more, or stop is closed. It looks
// now and then: whoever sleeps in poll(2) on the device is woken by every request.
func (c *Connection) Gone(stop <-chan struct{}) bool {
	fds := []unix.PollFd{{Fd: int32(c.File.Fd())}} // errors are told without being asked for
	look := time.NewTicker(goneEvery)
	defer look.Stop()
	for {
		n, err := unix.Poll(fds, 0)
		if err != nil && !errors.Is(err, unix.EINTR) || n > 0 {
			return true
		}
		select {
		case <-stop:
			return false
		case <-look.C:
		}
	}
}

// goneEvery is how often Gone looks. The process that serves notices at once; this is for the one
// that keeps the connection for it.
const goneEvery = 50 * time.Millisecond

// mountDirectly asks the kernel.
func mountDirectly(dir string, o *fuse.MountOptions) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return nil, err
	}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	data := append([]string{fmt.Sprintf("fd=%d", fd),
		fmt.Sprintf("rootmode=%o", st.Mode&unix.S_IFMT), fmt.Sprintf("user_id=%d", os.Geteuid()),
		fmt.Sprintf("group_id=%d", os.Getegid()), fmt.Sprintf("max_read=%d", o.MaxWrite)},
		withoutFlags(o.Options)...)
	if o.AllowOther {
		data = append(data, "allow_other")
	}
	err = unix.Mount(o.FsName, dir, "fuse."+o.Name, o.DirectMountFlags, strings.Join(data, ","))
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "/dev/fuse"), nil
}

// withoutFlags leaves out the names of flags, which the kernel does not know: see fuseFlags.
func withoutFlags(options []string) []string {
	return slices.DeleteFunc(slices.Clone(options), func(o string) bool {
		_, is := flagRules[o]
		return is
	})
}

// mountByHelper has fusermount3 mount it, which may do so for users. It sends the connection
// through a socket.
func mountByHelper(dir string, o *fuse.MountOptions) (*os.File, error) {
	escape := strings.NewReplacer(`\`, `\\`, `,`, `\,`)
	list := append([]string{"fsname=" + escape.Replace(o.FsName), "subtype=" + o.Name,
		fmt.Sprintf("max_read=%d", o.MaxWrite)}, o.Options...)
	if o.AllowOther {
		list = append(list, "allow_other")
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	own, theirs := os.NewFile(uintptr(pair[0]), "fusermount3"), os.NewFile(uintptr(pair[1]), "own")
	defer own.Close()
	cmd := exec.Command(fusermount(), "-o", strings.Join(list, ","), "--", dir)
	cmd.Env = append(os.Environ(), "_FUSE_COMMFD=3")
	cmd.ExtraFiles = []*os.File{theirs}
	out, err := cmd.CombinedOutput()
	_ = theirs.Close()
	if err != nil {
		return nil, fmt.Errorf("fusermount3: %w: %s", err, strings.TrimSpace(string(out)))
	}
	conn, err := net.FileConn(own)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_, f, err := ReceiveFile(conn.(*net.UnixConn), make([]byte, 16))
	if err == nil && f == nil {
		err = errors.New("fusermount3 has sent no connection")
	}
	return f, err
}

// SendFile sends a message with an open file through a socket.
func SendFile(to *net.UnixConn, text []byte, f *os.File) error {
	_, _, err := to.WriteMsgUnix(text, unix.UnixRights(int(f.Fd())), nil)
	return err
}

// ReceiveFile receives a message, with an open file if one came along.
func ReceiveFile(from *net.UnixConn, text []byte) (n int, f *os.File, err error) {
	rights := make([]byte, unix.CmsgSpace(4*4))
	n, rn, _, _, err := from.ReadMsgUnix(text, rights)
	if err != nil {
		return 0, nil, err
	}
	list, err := syscall.ParseSocketControlMessage(rights[:rn])
	if err != nil {
		return 0, nil, err
	}
	for i := range list {
		fds, err := syscall.ParseUnixRights(&list[i])
		if err != nil {
			continue // something else came along
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			if f != nil {
				_ = unix.Close(fd)
				continue
			}
			f = os.NewFile(uintptr(fd), "received")
		}
	}
	return n, f, nil
}

// connectionOf is the number of the FUSE connection that is mounted at dir, from the kernel's list:
// to ask the mount itself would wait for whoever serves it.
func connectionOf(dir string) (number uint32) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return 0
	}
	escape := strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`)
	want := escape.Replace(dir)
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 5 || f[4] != want {
			continue
		}
		var major, minor uint32
		if n, err := fmt.Sscanf(f[2], "%d:%d", &major, &minor); err == nil && n == 2 {
			number = minor // of several the last one lies on top
		}
	}
	return number
}

// retryRead reads a request.
func retryRead(fd int, buf []byte) (int, error) {
	for {
		n, err := unix.Read(fd, buf)
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return n, err
		}
	}
}
