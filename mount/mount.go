// Package mount serves a sluice file system to the kernel through FUSE, so that every program can
// use it. It is a thin layer: an inode's number is the kernel's node id, so that nothing has to
// be remembered per file that is not open; permissions are checked by the kernel
// (default_permissions); data goes between the kernel's buffers and the I/O servers without a
// copy of ours.
//
// Names and attributes are those that the service has, always: the kernel believes them under a
// lease only, and forgets them before that goes back (see forget.go). Data is close-to-open, unless
// Options.Cache says otherwise (see cachemode.go):
// opening a file asks the metadata service, or what is known under a lease, and the kernel keeps
// its pages only if the data version is the one that they were read at. Files that are opened with
// O_APPEND are not cached by the kernel, and each write of up to about 1 MiB to them goes to the
// end of the file as a whole, whatever other mounts do. (Not known to FUSE, and therefore not to
// us: RWF_APPEND and RWF_NOAPPEND of pwritev2(2). The position of such a file, lseek(2) with
// SEEK_CUR, is the kernel's guess.) Other sequential writes are sent in the background, others
// before write(2) returns; close(2) returns when all of them are at the I/O servers, fsync(2) when
// they are on stable storage. File locks (flock(2), fcntl(2)) hold between mounts; see lock.go.
//
// It does not parse options of a command line and handles no signals: package cmd does.
//
// Read mount.go first, then bridge.go (what every request shares), file.go, dir.go and forget.go.
package mount

import (
	"context"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"golang.org/x/sys/unix"
)

// Options of a mount.
type Options struct {
	// AttrTimeout is how long the kernel believes attributes at most: it is told to do so only under
	// a lease, and to forget them when that is recalled. Default 1 s; negative: not at all.
	AttrTimeout time.Duration

	// EntryTimeout is how long the kernel believes that a name leads to an inode, or to none, at
	// most: likewise, but that it is not told to forget them. So it is also how long another client
	// may have to wait that changes the directory. Default 250 ms; negative: not at all.
	EntryTimeout time.Duration

	// Cache is what the kernel may keep of files' data. Default CacheCloseToOpen.
	Cache CacheMode

	// AllowOther lets users other than the one who mounted use the file system.
	AllowOther bool

	// ReadOnly makes the kernel refuse all changes. It is set where the service refuses them.
	ReadOnly bool

	// Flags are options of mount(8) that all file systems have: dev, suid, noexec, noatime and so on.
	// Later ones win. Default: nosuid and nodev.
	Flags []string

	// NoACL turns access control lists off: the kernel asks for none, and they cannot be set. Those
	// that there are count at the service only. Default false.
	NoACL bool

	// ReadAhead is how many bytes the kernel reads ahead of a sequential reader. More than the
	// kernel's default of 128 KiB needs root. Default 8 MiB.
	ReadAhead int

	// MemoryMax bounds the buffers of requests under way, in bytes. While it is reached no request is
	// read any more, not even that another one is interrupted: programs that wait for a server that is
	// away, with about 1 MiB each, must not get there. What they take is otherwise bounded only by
	// how many threads of programs wait, and backgroundMax. Default 4 GiB, some 4000 of them.
	MemoryMax int

	// Atime says what reading does to times of access. Default AtimeRelative; none are noted where
	// ReadOnly is set.
	Atime Atime

	// LocalLocks keeps flock(2) and fcntl(2) locks in this kernel: they hold within this mount only,
	// and cost nothing. Default false: they hold between all mounts.
	LocalLocks bool

	// Name is the source in the list of mounts. Default "sluice".
	Name string

	// Debug prints every request.
	Debug bool

	// Logger gets what concerns people. Default: discard.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.AttrTimeout == 0 {
		o.AttrTimeout = time.Second
	}
	if o.EntryTimeout == 0 {
		o.EntryTimeout = 250 * time.Millisecond
	}
	o.AttrTimeout, o.EntryTimeout = max(o.AttrTimeout, 0), max(o.EntryTimeout, 0)
	if o.Cache == "" {
		o.Cache = CacheCloseToOpen
	}
	if o.ReadAhead == 0 {
		o.ReadAhead = 8 << 20
	}
	if o.MemoryMax == 0 {
		o.MemoryMax = 4 << 30
	}
	if o.ReadOnly {
		o.Atime = AtimeNone
	}
	if o.Name == "" {
		o.Name = "sluice"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o *Options) validate() error {
	if o.ReadAhead < 0 || o.MemoryMax < requestMax {
		return errs.Newf(errs.Invalid, "mount.Options", "",
			"ReadAhead %d, MemoryMax %d: at least 0 and %d", o.ReadAhead, o.MemoryMax, requestMax)
	}
	if _, err := flagsOf(o.Flags); err != nil {
		return err
	}
	if o.Atime > AtimeNone {
		return errs.Newf(errs.Invalid, "mount.Options", "", "Atime %d", o.Atime)
	}
	return o.Cache.validate()
}

// requestMax is the largest read or write request: what Linux allows unless it was tuned.
const requestMax = 1 << 20

// backgroundMax is how many requests of readahead and writeback the kernel may have under way:
// enough for a few streams to keep every stripe server of theirs busy.
const backgroundMax = 64

// Mounted is a mounted file system.
type Mounted struct {
	dir    string
	server *fuse.Server
	bridge *bridge
	watch  *watched
	opts   Options
	served chan struct{} // closed when the kernel has let go and all files are closed
	conn   uint32        // the number of the FUSE connection, the minor one of its device; 0: unknown

	mu sync.Mutex // held while unmounting
}

// Mount mounts fs at dir, which must be an existing directory; a mount there whose server is gone
// is removed first. fs stays the caller's and must live until Wait returns. ctx bounds mounting
// only.
func Mount(ctx context.Context, fs *client.FS, dir string, opts Options) (*Mounted, error) {
	opts.ReadOnly = opts.ReadOnly || fs.ReadOnly()
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
	if err := ctx.Err(); err != nil {
		return nil, errs.Wrap("mount", dir, err)
	}
	opts.limitTimeouts(fs)
	b := newBridge(fs, opts)
	w := newWatched(b)
	server, err := fuse.NewServer(w, dir, fuseOptions(&opts))
	if err != nil {
		return nil, errs.Newf(errs.KindOf(err), "mount", dir, "%w; is /dev/fuse there, and is the "+
			"caller root or fusermount3 installed?", err)
	}
	closeOnExec()
	m := &Mounted{dir: dir, server: server, bridge: b, watch: w, opts: opts,
		served: make(chan struct{})}
	go m.serve()
	if err := server.WaitMount(); err != nil {
		_ = m.Unmount()
		return nil, errs.Wrap("mount", dir, err)
	}
	m.setReadAhead()
	return m, nil
}

// limitTimeouts keeps what the kernel believes within leases: else one would be over before it went
// back.
func (o *Options) limitTimeouts(fs *client.FS) {
	if most := fs.LeaseTime() / 4; most > 0 {
		o.AttrTimeout = min(o.AttrTimeout, most)
		o.EntryTimeout = min(o.EntryTimeout, most)
	}
}

// closeOnExec keeps FUSE connections out of child processes, which a direct mount does not: a
// child that outlives this process would keep a mount alive that nobody serves.
func closeOnExec() {
	const fds = "/proc/self/fd"
	list, err := os.ReadDir(fds)
	if err != nil {
		return
	}
	for _, e := range list {
		fd, err := strconv.Atoi(e.Name())
		target, lerr := os.Readlink(filepath.Join(fds, e.Name()))
		if err == nil && lerr == nil && target == "/dev/fuse" {
			unix.CloseOnExec(fd)
		}
	}
}

func (m *Mounted) serve() {
	defer close(m.served)
	m.server.Serve()
	m.bridge.kept.end()
	m.bridge.closeAll()
}

func fuseOptions(o *Options) *fuse.MountOptions {
	f := &fuse.MountOptions{
		AllowOther:    o.AllowOther,
		EnableLocks:   !o.LocalLocks,
		Options:       []string{"default_permissions"},
		MaxBackground: backgroundMax,
		MaxWrite:      requestMax,
		MaxReadAhead:  requestMax,

		MaxInflightRequestBytes: o.MemoryMax,

		FsName:      o.Name,
		Name:        "sluice",
		Debug:       o.Debug,
		Logger:      log.New(logWriter{o.Logger}, "", 0),
		DirectMount: os.Geteuid() == 0,

		// Data comes from memory: there is nothing to splice from, and trying costs.
		DisableSplice: true,

		// O_TRUNC is part of OPEN, so that opening and truncating are one request. Set-user-id bits
		// are dropped here (see dropPrivileges), so that the kernel need not ask for
		// security.capability before every write. Files that are appended to have no pages of the
		// kernel's (see appending), and may be mapped all the same. The mask of who makes something
		// counts where the directory has no default list, which the service knows. Handles of inodes
		// that the kernel has forgotten are looked up (see lookupHandle).
		ExtraCapabilities: fuse.CAP_ATOMIC_O_TRUNC | fuse.CAP_HANDLE_KILLPRIV_V2 |
			fuse.CAP_DIRECT_IO_ALLOW_MMAP | fuse.CAP_DONT_MASK | fuse.CAP_SETXATTR_EXT |
			fuse.CAP_EXPORT_SUPPORT,
		EnableAcl: !o.NoACL,

		// Pages are dropped at open when the data version has changed, and the length is looked up
		// again when the file was truncated (see opened); not whenever the time of change differs
		// from what the kernel thought, which every write of our own would cause.
		DisabledCapabilities: fuse.CAP_AUTO_INVAL_DATA,
	}
	if o.Cache == CacheWriteback {
		f.ExtraCapabilities |= fuse.CAP_WRITEBACK_CACHE
	}
	if o.ReadOnly {
		o.Flags = append(slices.Clip(o.Flags), "ro")
	}
	flags, _ := flagsOf(o.Flags) // they were validated
	var names []string
	f.DirectMountFlags, names = fuseFlags(f.DirectMount, flags, o.Flags)
	f.Options = append(f.Options, names...)
	return f
}

// logWriter passes go-fuse's messages on.
type logWriter struct{ to *slog.Logger }

func (w logWriter) Write(p []byte) (int, error) {
	w.to.Info("fuse", "text", string(p))
	return len(p), nil
}

// Wait returns when the file system is unmounted, by Unmount or by anybody else, and all its
// files are closed.
func (m *Mounted) Wait() { <-m.served }

// Dir is where the file system is mounted.
func (m *Mounted) Dir() string { return m.dir }
