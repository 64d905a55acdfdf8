package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/activity"
	"github.com/sluice-storage/sluice/mount"
)

// mountOptions is what `sluice mount` was asked for.
type mountOptions struct {
	url, dir                                 string
	detach, readOnly, allowOther, keepTrying bool
	localLocks, noACL, check                 bool
	timeout                                  time.Duration // 0: for ever
	options                                  optionList
	source                                   string // in the list of mounts
	cache, atime, log                        string
	keeper, kept, upgrade                    bool // keep the mount; this process is kept
	giveUp                                   time.Duration
	by                                       providersFlag
	web                                      adminFlag
	webFile                                  string // where the admin address is written; may be empty
}

func newMount() *cobra.Command {
	var o mountOptions
	cmd := &cobra.Command{
		Use:   "mount URL DIR",
		Short: "Mount a cluster's file system",
		Long: "Mounts a cluster's file system, or a directory of it, at DIR until it is interrupted " +
			"or\nunmounted (sluice umount DIR).\n\n" + keeperText +
			"-o takes the options of mount(8) that all file systems have (ro, noatime, noexec, dev,\n" +
			"suid ...; nosuid and nodev unless suid and dev are given), those of fstab(5), which mean\n" +
			"nothing here (_netdev, nofail, user, x-systemd...), and all flags of this command:\n" +
			"-o allow_other,secret=FILE. -o remount changes a mount that is there.\n\n" +
			"Called as mount.sluice it is the helper of mount(8): see docs/ops/fstab.md.",
		Example: "  sluice mount -d sluice://127.0.0.1:9400 ./mnt\n" +
			"  sluice mount -d --atime none sluice://127.0.0.1:9400 ./mnt\n" +
			"  sluice mount -d --timeout 10m sluice://127.0.0.1:9400 ./mnt\n" +
			"  sluice mount -d -o ro,noatime sluice://127.0.0.1:9400/projects ./projects\n" +
			"  sluice mount -o remount,ro sluice://127.0.0.1:9400 ./mnt\n" +
			"  sluice mount --upgrade ./mnt\n" +
			"  mount -t sluice 127.0.0.1:9400/ /mnt -o secret=/etc/sluice.secret",
		Args: func(cmd *cobra.Command, args []string) error {
			if o.upgrade {
				return cobra.ExactArgs(1)(cmd, args)
			}
			return cobra.ExactArgs(2)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.detach, "detach", "d", false, "return when it is mounted and leave it running")
	flags.Bool("foreground", true, "stay until it is unmounted; -d does not")
	flags.BoolVar(&o.readOnly, "read-only", false, "refuse all changes")
	flags.BoolVar(&o.allowOther, "allow-other", os.Geteuid() == 0, "let other users in")
	flags.BoolVar(&o.localLocks, "local-locks", false,
		"flock and fcntl locks hold within this mount only, and cost no requests")
	flags.StringVar(&o.cache, "cache", string(mount.CacheCloseToOpen),
		`what the kernel keeps of files' data:
strict         nothing: a read sees every write that has returned, on any mount
close-to-open  pages, until the file is opened and has changed; what was written is at the servers
               when the file is closed
writeback      pages, and what is written stays in them until it is written back, synced or closed:
               fastest for small writes; while a file is open here, changes by others are not seen`)
	o.addOptions(flags)
	flags.StringVar(&o.atime, "atime", mount.AtimeRelative.String(),
		"what reading does to times of access: `relatime`, strict or none")
	o.addKeeper(flags)
	flags.BoolVar(&o.keepTrying, "keep-trying", false, "wait for the cluster for as long as it takes")
	flags.DurationVar(&o.timeout, "timeout", time.Minute,
		"how long programs wait for a server that does not answer before they get EIO; 0: for ever")
	flags.StringVar(&o.log, "log", "",
		"with -d, the `FILE` that its output goes to (default mount.log in a folder of the user's own)")
	o.web.add(cmd, adminOff)
	flags.StringVar(&o.webFile, "admin-file", "", "write the admin address into this `FILE`")
	_ = flags.MarkHidden("admin-file") // it is there
	o.by.add(cmd)
	o.by.secret.addClient(cmd)
	return cmd
}

// run does what the command line asks for.
func (o *mountOptions) run(cmd *cobra.Command, args []string) error {
	if o.upgrade {
		return upgradeMount(cmd, args[0])
	}
	o.url, o.dir = args[0], args[1]
	if !strings.HasPrefix(o.url, scheme+"//") {
		return refuse(o.url+" is no URL", "Write sluice://HOST:PORT, like sluice://"+defaultListen)
	}
	o.options.served = func() map[string]string { return askServed(o.dir) }
	if err := o.options.apply(cmd); err != nil || o.check {
		return err
	}
	switch {
	case o.timeout < 0:
		return refuse("--timeout is negative", "Write a duration like 90s, or 0 to wait for ever")
	case o.options.remount:
		return remountDir(o.dir, &o.options)
	case o.detach:
		return detachMount(cmd, o.log)
	}
	return runMount(cmd, *o)
}

// detachMount leaves the mount running in the background.
func detachMount(cmd *cobra.Command, log string) error {
	if log == "" {
		dir, err := ownFolder()
		if err != nil {
			return err
		}
		log = filepath.Join(dir, "mount.log")
	}
	return detach(cmd, detachOptions{log: log, args: withoutDetach(os.Args[1:])})
}

// mountAs are the options of the mount itself.
func (o *mountOptions) mountAs(log *slog.Logger) (mount.Options, error) {
	atime, err := mount.ParseAtime(o.atime)
	if err != nil {
		return mount.Options{}, refuse("--atime "+o.atime+" is unknown",
			"Choose relatime (once after each change, and once a day), strict (always) or none")
	}
	return mount.Options{AllowOther: o.allowOther, ReadOnly: o.readOnly, LocalLocks: o.localLocks,
		Cache: mount.CacheMode(o.cache), Atime: atime, NoACL: o.noACL, Flags: o.options.flags,
		Name: cmp.Or(o.source, o.url), Logger: log}, nil
}

func runMount(cmd *cobra.Command, o mountOptions) error {
	switch {
	case o.giveUp <= 0:
		return refuse("--give-up "+o.giveUp.String()+" is no time to wait",
			"Write one like --give-up 60s")
	case o.kept:
		collectSeldom()
		return serveKept(cmd, o)
	case o.keeper:
		return keepMount(cmd, o)
	}
	collectSeldom()
	log := newLogger()
	opts, err := o.mountAs(log)
	if err != nil {
		return err
	}
	dir, err := prepareMountpoint(o.dir)
	if err != nil {
		return err
	}
	conn, err := dialForMount(cmd.Context(), o, o.clientOptions(log))
	if err != nil {
		return err
	}
	defer conn.close()
	spareProcs(procsFUSE)
	m, err := mount.Mount(cmd.Context(), conn.fs, dir, opts)
	if err != nil {
		return err
	}
	spareProcs(procsLeast)
	stop, err := o.serveWeb(conn, m, log)
	if err != nil {
		return errors.Join(err, m.Unmount())
	}
	defer stop()
	gone := make(chan struct{})
	go func() {
		m.Wait()
		close(gone)
	}()
	announce(cmd, o.text(dir))
	select {
	case <-gone:
		return nil
	case <-cmd.Context().Done():
		err := m.Unmount()
		<-gone
		return err
	}
}

// text is what is said to whoever mounted it.
func (o *mountOptions) text(dir string) string {
	return fmt.Sprintf("Mounted %s at %s.\nUnmount it with: sluice umount %s\n", o.url, dir, o.dir)
}

func (o *mountOptions) serveWeb(conn *connection, m *mount.Mounted, log *slog.Logger) (
	stop func(), err error) {
	return o.web.serve(o.webFile, admin.WebOptions{Logger: log,
		Gather:   func() []admin.Family { return mountFamilies(conn.fs, m) },
		Activity: seen("mount", "mount", func(s *activity.Snapshot) { mountActivity(m, s) })})
}

func (o *mountOptions) clientOptions(log *slog.Logger) client.Options {
	return client.Options{Name: "mount " + o.dir, Mount: mountShown(o.dir), Logger: log,
		Buffers: boundClient(true).buffers,
		WaitMax: patience(o.timeout), TellLater: tellLater(o.cache)}
}

// dialForMount waits for a cluster that is starting, if that is wished for.
func dialForMount(ctx context.Context, o mountOptions, c client.Options) (*connection, error) {
	for {
		conn, err := dialBy(ctx, o.url, &o.by, c)
		if err == nil || !o.keepTrying || ctx.Err() != nil {
			return conn, err
		}
		c.Logger.Warn("the cluster does not answer; trying again", "url", o.url, "err", err)
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// prepareMountpoint makes the directory, frees it of a mount whose server is dead, and refuses one
// that is in use.
func prepareMountpoint(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	used, err := freeMountpoint(abs)
	if err != nil {
		return "", err
	}
	if used {
		return "", refuse("something is mounted at "+dir+" already",
			"Unmount it with: sluice umount "+dir+"   or choose another directory")
	}
	if err := os.MkdirAll(abs, 0o755); err != nil {
		return "", err
	}
	if _, err := os.Stat("/dev/fuse"); errors.Is(err, os.ErrNotExist) {
		return "", hint(errs.Newf(errs.Unsupported, "mount", dir, "there is no /dev/fuse here"),
			"Load the kernel's module: modprobe fuse   Or work without a mount: sluice ls, cp, nbd")
	}
	return abs, nil
}

// freeMountpoint takes mounts away whose servers are dead, and tells whether a living one is there.
func freeMountpoint(dir string) (used bool, err error) {
	for {
		mounted, err := isMountpoint(dir)
		if err != nil || !mounted {
			return false, err
		}
		if !isDeadMount(dir) {
			return true, nil
		}
		if err := unmountDir(dir, true); err != nil {
			return false, err
		}
	}
}
