package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/attach"
	"github.com/sluice-storage/sluice/attach/early"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
)

// inUseAdvice is for who detaches what is used.
const inUseAdvice = "Unmount what is mounted from it (findmnt shows that), or add --force: " +
	"programs that use it get errors then"

// attachTries is how often it is tried to attach: a process that dies meanwhile has a successor.
const attachTries = 5

// front attaches a device, or finds that it is, and tells where.
func (o *attachOptions) front(cmd *cobra.Command, spec *attach.Spec) error {
	if err := needRoot(); err != nil {
		return err
	}
	place := attach.Place{Dir: o.place}
	unlock, err := place.Lock(cmd.Context(), spec.Name)
	if err != nil {
		return err
	}
	unlock = sync.OnceFunc(unlock)
	defer unlock()
	for try := 0; ; try++ {
		info, served, err := o.attachOnce(cmd, place, spec)
		if err == nil {
			err = printAttached(cmd, info, o.asJSON)
			if served == nil {
				return err
			}
			unlock()
			return served.stay(err)
		}
		if try == attachTries || cmd.Context().Err() != nil || !again(err) {
			return err
		}
		wait.Sleep(cmd.Context(), 100*time.Millisecond)
	}
}

// again tells whether an error comes of a process that died, or that had just come.
func again(err error) bool {
	return errs.KindOf(err) == errs.Disconnected || strings.Contains(err.Error(), servedElsewhere)
}

// servedElsewhere is what a process says that was started in vain.
const servedElsewhere = "another process serves it"

// attachOnce finds the device attached, or attaches it. served is not nil where this process serves
// it from now on.
func (o *attachOptions) attachOnce(cmd *cobra.Command, place attach.Place, spec *attach.Spec) (
	info *attachInfo, served *attachHere, err error) {
	have, err := place.Spec(spec.Name)
	known := err == nil
	switch {
	case known && !have.Same(spec):
		return nil, nil, refuse(fmt.Sprintf("%s is attached already, as %s", spec.Name, specText(&have)),
			"Detach it with: sluice detach "+spec.Name+"   or choose another --name")
	case known && place.Served(spec.Name):
		info, err = awaitAttached(cmd.Context(), place, spec.Name)
		return info, nil, err
	case !known && !errors.Is(err, os.ErrNotExist):
		return nil, nil, err
	}
	if !known {
		if err := place.Make(spec); err != nil {
			return nil, nil, err
		}
	}
	if early.Waits() {
		info, served, err = o.serveHere(cmd, place, spec)
	} else {
		info, err = startAttacher(cmd, place, spec)
	}
	if err != nil {
		state, e := place.State(spec.Name)
		if e == nil && !state.Connected && !place.Served(spec.Name) {
			err = errors.Join(err, place.Remove(spec.Name)) // nothing came of it
		}
	}
	return info, served, err
}

func specText(s *attach.Spec) string {
	text := s.Target
	if s.Device >= 0 {
		text += " at " + attach.System{}.Node(s.Device)
	}
	if s.ReadOnly {
		text += ", read-only"
	}
	if s.Shared {
		text += ", shared"
	}
	return text
}

// startAttacher starts the process that serves, and waits until it does, or has said why not: where
// this one has nobody who waits in its stead.
func startAttacher(cmd *cobra.Command, place attach.Place, spec *attach.Spec) (
	*attachInfo, error) {
	// The mark is this thread's, and its children's.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := attach.MarkFlusher(); err != nil {
		newLogger().Warn("the process is not known as one that writes out memory", "err", err)
	}
	var said bytes.Buffer
	out := cmd.OutOrStdout()
	cmd.SetOut(&said)
	defer cmd.SetOut(out)
	err := detach(cmd, detachOptions{log: place.File(spec.Name, attach.LogFile),
		args: withServe(spec.Args, "--serve")})
	if err != nil {
		return nil, err
	}
	info := new(attachInfo)
	return info, errs.Wrap("attach", spec.Name, json.Unmarshal(said.Bytes(), info))
}

// awaitAttached asks the process that serves until the device is there. One that waits for servers,
// with programs behind it, is not waited for longer than that.
func awaitAttached(ctx context.Context, place attach.Place, name string) (*attachInfo, error) {
	for began := time.Now(); ; {
		a, err := askAttached(ctx, place, name, attachRequest{Do: "status"})
		if err != nil {
			return nil, err
		}
		if a.Info.State != isWaiting {
			return &a.Info, nil
		}
		if time.Since(began) > answerMax || !wait.Sleep(ctx, 50*time.Millisecond) {
			return nil, errs.Newf(errs.TimedOut, "attach", name,
				"the device is there and waits for servers: %s", a.Info.Why)
		}
	}
}

// runForeground serves the device in this process.
func (o *attachOptions) runForeground(cmd *cobra.Command, spec *attach.Spec) error {
	if err := needRoot(); err != nil {
		return err
	}
	if err := markSelf(); err != nil {
		newLogger().Warn("the process is not known as one that writes out memory", "err", err)
	}
	place := attach.Place{Dir: o.place}
	unlock, err := place.Lock(cmd.Context(), spec.Name)
	if err != nil {
		return err
	}
	have, err := place.Spec(spec.Name)
	switch {
	case err == nil && !have.Same(spec):
		err = refuse(fmt.Sprintf("%s is attached already, as %s", spec.Name, specText(&have)),
			"Detach it with: sluice detach "+spec.Name)
	case errors.Is(err, os.ErrNotExist):
		err = place.Make(spec)
	}
	unlock()
	if err != nil {
		return err
	}
	err = newAttacher(cmd, o, spec).serve(cmd.Context())
	if state, e := place.State(spec.Name); err != nil && e == nil && !state.Connected &&
		!place.Served(spec.Name) {
		err = errors.Join(err, place.Remove(spec.Name)) // nothing came of it
	}
	return err
}

// markedEnv says that a process has been marked, or cannot be.
const markedEnv = "SLUICE_ATTACH_MARKED"

// markSelf marks all threads of this process: it runs the program again, in the same process, from
// a thread that is marked.
func markSelf() error {
	if os.Getenv(markedEnv) != "" || attach.IsFlusher() {
		return nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := attach.MarkFlusher(); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(self, os.Args, append(os.Environ(), markedEnv+"=1"))
}

// loadNBD loads the kernel's module. Whether that worked is seen by what is there then.
func loadNBD() {
	path, err := exec.LookPath("modprobe")
	if err != nil {
		path = "/sbin/modprobe"
	}
	_ = exec.Command(path, "nbd").Run()
}
