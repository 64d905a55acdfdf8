package main

import (
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/attach"
	"github.com/sluice-storage/sluice/attach/early"
	"github.com/sluice-storage/sluice/errs"
)

// The names of processes of devices, for ps and pgrep.
const (
	servingName  = "sluice-attach"
	standingName = "sluice-standby"
)

// nameProcess gives this process a name. Without one it is known by its program's.
func nameProcess(name string) {
	_ = os.WriteFile("/proc/self/comm", []byte(name), 0)
}

// attachHere is a device that the command's own process serves: its parent waits for the shell's
// sake, and ends first (package early).
type attachHere struct {
	log   *os.File
	ended chan error
}

// serveHere serves the device in this process and returns when it can be used.
func (o *attachOptions) serveHere(cmd *cobra.Command, place attach.Place, spec *attach.Spec) (
	*attachInfo, *attachHere, error) {
	signal.Ignore(syscall.SIGPIPE) // of who reads what is printed; the device outlives that
	log, err := openLog(place.File(spec.Name, attach.LogFile))
	if err != nil {
		return nil, nil, err
	}
	h := &attachHere{log: log, ended: make(chan error, 1)}
	a := newAttacher(cmd, o, spec)
	a.out, a.log = log, slog.New(slog.NewTextHandler(log, nil)).With("device", spec.Name)
	if !attach.IsFlusher() {
		a.log.Warn("the process is not known as one that writes out memory")
	}
	ready := make(chan attachInfo, 1)
	a.ready = func(i attachInfo) { ready <- i }
	go func() { h.ended <- a.serve(cmd.Context()) }()
	select {
	case info := <-ready:
		return &info, h, nil
	case err := <-h.ended:
		if err == nil { // somebody has detached it already
			err = errs.New(errs.Disconnected, "attach", spec.Name, nil)
		}
		return nil, nil, errors.Join(err, log.Close())
	}
}

// stay lets the command end, as far as its caller can see, and serves the device until it is
// detached. failed is why the caller was not told where it is.
func (h *attachHere) stay(failed error) error {
	code := 0
	if failed != nil {
		code = 1
		os.Stderr.WriteString("sluice: " + explain(failed) + "\n")
	}
	if err := errors.Join(h.redirect(), early.Release(code)); err != nil {
		slog.New(slog.NewTextHandler(h.log, nil)).Warn("leaving the terminal", "err", err)
	}
	return <-h.ended
}

// redirect has everything that is printed from now on go into the log.
func (h *attachHere) redirect() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	for fd, f := range []*os.File{null, h.log, h.log} {
		if err := unix.Dup3(int(f.Fd()), fd, 0); err != nil {
			return os.NewSyscallError("dup3", err)
		}
	}
	return nil
}
