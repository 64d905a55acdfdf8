package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/attach"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
)

func newDetach() *cobra.Command {
	var force, asJSON bool
	var dir string
	cmd := &cobra.Command{
		Use:   "detach NAME|VOLUME|nbd://...|/dev/nbdN",
		Short: "End a block device that sluice attach has made",
		Long: `Ends a device that sluice attach has made: what was written to it is synced, the kernel
lets go of it, the process that serves it ends, and the volume is free for others. While a file
system is mounted from the device, or something else stands on it, that is refused, unless --force
is given: whoever uses it gets errors then, and what was not synced is lost.`,
		Example: "  umount /mnt && sluice detach db\n  sluice detach /dev/nbd3\n" +
			"  sluice detach --force db",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := needRoot(); err != nil {
				return err
			}
			place := attach.Place{Dir: dir}
			name, err := findAttached(cmd.Context(), place, args[0])
			if err != nil {
				return err
			}
			info, err := detachDevice(cmd.Context(), place, name, force)
			switch {
			case err != nil:
				return err
			case asJSON:
				return printJSON(cmd, info)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "detached %s\n", info.Target)
			return nil
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also while it is in use")
	cmd.Flags().StringVar(&dir, "state", attach.DefaultPlace, "the `FOLDER` of what is attached")
	_ = cmd.Flags().MarkHidden("state") // it is there
	addJSON(cmd, &asJSON, attachInfo{})
	return cmd
}

// findAttached is the name of a device that is called by its name, target, file or link.
func findAttached(ctx context.Context, place attach.Place, text string) (string, error) {
	names, err := place.List()
	if err != nil {
		return "", err
	}
	node := text
	if to, err := filepath.EvalSymlinks(text); err == nil {
		node = to
	}
	for _, name := range names {
		spec, err := place.Spec(name)
		if err != nil {
			continue // it was detached meanwhile
		}
		if name == text || spec.Target == text || strings.HasSuffix(spec.Target, "/"+text) {
			return name, nil
		}
		if info, err := attachedInfo(ctx, place, name); err == nil && info.Device == node {
			return name, nil
		}
	}
	return "", refuse(text+" is not attached", "See what is: sluice attach --list")
}

// detachDevice ends a device, whether a process serves it or not.
func detachDevice(ctx context.Context, place attach.Place, name string, force bool) (
	*attachInfo, error) {
	unlock, err := place.Lock(ctx, name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	info, err := attachedInfo(ctx, place, name)
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		if place.Served(name) {
			_, err = askAttached(ctx, place, name, attachRequest{Do: "detach", Force: force})
		} else {
			err = endUnserved(ctx, place, name, force)
		}
		kind := errs.KindOf(err)
		passing := kind == errs.Disconnected || strings.Contains(fmt.Sprint(err), servedElsewhere)
		if err == nil || !passing || try == attachTries {
			break
		}
		if _, e := place.Spec(name); errors.Is(e, os.ErrNotExist) {
			err = nil // it had done it when it died
			break
		}
		wait.Sleep(ctx, 200*time.Millisecond)
	}
	if err == nil {
		awaitEnd(ctx, info.PID)
	}
	return &info, err
}

// endUnserved ends a device whose process is dead.
func endUnserved(ctx context.Context, place attach.Place, name string, force bool) error {
	end, err := place.Serve(ctx, name, false)
	if errs.KindOf(err) == errs.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	defer end()
	spec, err := place.Spec(name)
	if err != nil {
		return err
	}
	k, err := openKernel()
	if err != nil {
		return err
	}
	defer k.Close()
	a := &attacher{spec: &spec, place: place, log: newLogger(), kernel: k}
	if a.state, err = place.State(name); err != nil {
		return err
	}
	a.findDevice()
	if used := attach.InUse(a.system, a.state.Index); a.state.Connected && used && !force {
		return hint(errs.Newf(errs.Busy, "detach", a.system.Node(a.state.Index),
			"the device is in use, and no process serves it"), "%s. Or serve it again: sluice attach",
			inUseAdvice)
	}
	return a.finish(true)
}

// endMax is how long a process may take to end that has detached its device.
const endMax = 5 * time.Second

// awaitEnd waits until a process is gone: whoever has detached a device finds nothing of it.
func awaitEnd(ctx context.Context, pid int) {
	for began := time.Now(); pid > 0 && time.Since(began) < endMax; {
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || !wait.Sleep(ctx, 10*time.Millisecond) {
			return
		}
	}
}
