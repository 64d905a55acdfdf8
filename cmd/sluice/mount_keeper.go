package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/internal/procid"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/mount/keeper"
)

// defaultGiveUp is for how long programs wait for a mount that nobody serves.
const defaultGiveUp = 60 * time.Second

// keeperText is what the help says of it.
const keeperText = `The mount is served by a process of its own, which is started again when it
dies. Programs that use the mount wait meanwhile and go on; only data that was written, not
synced, and not yet at the servers is lost with the process, and the next fsync or close of the
file says so (EIO). With --upgrade DIR, or when this command gets SIGHUP, that process hands over
to one of the program that is installed now, with nothing lost and files open. That needs
Linux 6.9 or later.

`

// addKeeper adds the flags.
func (o *mountOptions) addKeeper(flags *pflag.FlagSet) {
	flags.BoolVar(&o.keeper, "keeper", true,
		"serve the mount by a process of its own, and start that again when it dies")
	flags.DurationVar(&o.giveUp, "give-up", defaultGiveUp,
		"take the mount away when it could not be served again for this long")
	flags.BoolVar(&o.upgrade, "upgrade", false,
		"serve the mount at DIR by the program that is installed now; files stay open")
	flags.BoolVar(&o.kept, "kept", false, "serve for a keeper")
	_ = flags.MarkHidden("kept") // it is there
}

// keepMount is `sluice mount`: it keeps the mount, and has another process of the same program
// serve it.
func keepMount(cmd *cobra.Command, o mountOptions) error {
	log := newLogger()
	opts, err := o.mountAs(log)
	if err != nil {
		return err
	}
	if o.keepTrying {
		awaitMountpoint(cmd.Context(), o.dir)
	}
	dir, err := prepareMountpoint(o.dir)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	upgrades := make(chan chan<- error)
	stop := listenForUpgrades(cmd.Context(), dir, upgrades, log)
	defer stop()
	untell := func() {}
	defer func() { untell() }()
	name := "mount " + dir
	err = keeper.Run(cmd.Context(), keeper.Options{
		Dir: dir, Mount: opts, Name: procid.Name(name[:min(len(name), 128)]),
		Path: self, Args: keptArgs(cmd, &o), Env: keptEnv(), GiveUp: o.giveUp, Upgrades: upgrades,
		Ready: func(text string) {
			untell = tellServed(cmd, dir)
			announce(cmd, text)
		}, Logger: log})
	var failed *keeper.Failure
	if errors.As(err, &failed) && failed.Advice != "" {
		return &hinted{err, failed.Advice}
	}
	return err
}

// leavingMax is how long the process may take to end that served for a keeper which was killed.
const leavingMax = 5 * time.Second

// awaitMountpoint waits while a directory is a mount whose keeper may just have died: who serves it
// ends with its keeper, but not in the same moment.
func awaitMountpoint(ctx context.Context, dir string) {
	for began := time.Now(); time.Since(began) < leavingMax; {
		used, err := freeMountpoint(dir)
		if err != nil || !used || !wait.Sleep(ctx, 50*time.Millisecond) {
			return
		}
	}
}

// keptArgs are the arguments of the process that serves: those of this one, as they were read.
func keptArgs(cmd *cobra.Command, o *mountOptions) []string {
	args := []string{"mount", "--kept"}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "detach", "foreground", "keeper", "upgrade", "give-up", "log":
		default:
			args = append(args, "--"+f.Name+"="+f.Value.String())
		}
	})
	return append(args, "--", o.url, o.dir)
}

// keptEnv is the environment without what is meant for this process alone.
func keptEnv() (env []string) {
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, readyEnv+"=") {
			env = append(env, e)
		}
	}
	return env
}

// upgradeMax is how long an upgrade may take: what was written has to be synced first.
const upgradeMax = 2 * time.Minute

// upgradeSocket is where the keeper of a mount listens: a name without a file, so that none is
// left.
func upgradeSocket(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return "@sluice-mount-" + hex.EncodeToString(sum[:16])
}

// listenForUpgrades passes on requests to replace the process that serves: by SIGHUP, and by sluice
// mount --upgrade.
func listenForUpgrades(ctx context.Context, dir string, to chan<- chan<- error,
	log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	hups := make(chan os.Signal, 1)
	signal.Notify(hups, syscall.SIGHUP)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-hups:
				if err := askUpgrade(ctx, to); err != nil {
					log.Error("the mount was not upgraded", "dir", dir, "err", err)
				}
			}
		}
	}()
	l, err := net.Listen("unix", upgradeSocket(dir))
	if err != nil {
		log.Warn("sluice mount --upgrade does not reach this mount; SIGHUP does", "err", err)
		return func() { signal.Stop(hups); cancel() }
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answerUpgrade(ctx, c.(*net.UnixConn), to)
		}
	}()
	return func() { signal.Stop(hups); cancel(); _ = l.Close() }
}

func askUpgrade(ctx context.Context, to chan<- chan<- error) error {
	answer := make(chan error, 1)
	select {
	case to <- answer:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// answerUpgrade serves one request: nothing is read, the answer is empty or says what went wrong.
func answerUpgrade(ctx context.Context, c *net.UnixConn, to chan<- chan<- error) {
	defer c.Close()
	if !trusts(c) {
		fmt.Fprint(c, "only root and the user who mounted it may do that")
		return
	}
	if err := askUpgrade(ctx, to); err != nil {
		fmt.Fprint(c, err)
	}
}

// trusts tells whether the other side of a socket is root or the user of this process.
func trusts(c *net.UnixConn) (ok bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		ok = err == nil && (cred.Uid == 0 || int(cred.Uid) == os.Geteuid())
	})
	return ok && err == nil
}

// upgradeMount is `sluice mount --upgrade DIR`.
func upgradeMount(cmd *cobra.Command, name string) error {
	dir, err := filepath.Abs(name)
	if err != nil {
		return err
	}
	c, err := net.Dial("unix", upgradeSocket(dir))
	if err != nil {
		return refuse("no mount at "+name+" can be upgraded",
			"See what is mounted: findmnt -t fuse.sluice   (with --keeper=false nothing can be)")
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(upgradeMax))
	said, err := io.ReadAll(c)
	if err != nil {
		return err
	}
	if len(said) > 0 {
		return hint(errors.New(string(said)), "The mount goes on as it was; its log says more")
	}
	fmt.Fprintf(cmd.OutOrStdout(), "Upgraded the mount at %s.\n", dir)
	return nil
}
