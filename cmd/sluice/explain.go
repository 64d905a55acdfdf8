package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/sluice-storage/sluice/config"
	"github.com/sluice-storage/sluice/errs"
)

// hinted is an error with advice of its own.
type hinted struct {
	err  error
	hint string
}

func (h *hinted) Error() string { return h.err.Error() }
func (h *hinted) Unwrap() error { return h.err }

// hint puts advice on an error; nil stays nil.
func hint(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &hinted{err, fmt.Sprintf(format, args...)}
}

// refuse is an error that the user can cure, with the cure.
func refuse(what, cure string) error {
	return &hinted{errors.New(what), cure}
}

// explain is an error with what to do next: its own advice, or what its kind suggests.
func explain(err error) string {
	text := err.Error()
	var h *hinted
	if errors.As(err, &h) {
		return text + "\n  " + h.hint
	}
	var invalid config.Invalid
	if errors.As(err, &invalid) {
		return text + "\n  " + invalid.Remedy()
	}
	if next := nextStep(err); next != "" {
		return text + "\n  " + next
	}
	return text
}

func nextStep(err error) string {
	if strings.HasPrefix(err.Error(), "unknown ") || strings.Contains(err.Error(), "arg(s)") {
		return "See: sluice help"
	}
	if errors.Is(err, exec.ErrNotFound) {
		return "Install it, or run: make deps"
	}
	if errors.Is(err, context.Canceled) {
		return "Interrupted. What was done so far stays; it is safe to run it again."
	}
	switch errs.KindOf(err) {
	case errs.NotFound:
		return "See what is there: sluice ls, sluice volume ls"
	case errs.Exists:
		return "Choose another name, or remove what has it: sluice rm, sluice volume rm"
	case errs.NotEmpty, errs.IsDir:
		return "It is a directory: add -r to include what is in it"
	case errs.NotDir:
		return "A part of the path is a file: see sluice ls on the part before it"
	case errs.Access, errs.Perm:
		return "Run it as the owner, or change the rights on the mount with chmod"
	case errs.NoSpace, errs.Quota:
		return "See how much is left and where: sluice status"
	case errs.Disconnected, errs.Shutdown:
		return "Is the cluster running? Start it with: sluice up   Look with: sluice status"
	case errs.TimedOut:
		return "Something takes too long. See which process is in trouble: sluice status"
	case errs.Busy:
		return "Somebody uses it: end that first, see sluice status"
	case errs.Version, errs.Protocol:
		return "The other side speaks another version: use the same build on both, see sluice version"
	case errs.Forged, errs.Expired:
		return "The cluster's key does not match: use the folder that the cluster was started with"
	case errs.Invalid, errs.NameTooLong, errs.TooBig, errs.OutOfRange, errs.Loop:
		return "See the verb's help: sluice help VERB"
	case errs.ReadOnly:
		return "It was opened for reading only: leave out ro or --read-only"
	case errs.Unsupported:
		return "This build or this machine cannot do that: see sluice version"
	case errs.NoMemory:
		return "The bound on memory is reached: give more with sluice up --memory"
	case errs.Stale, errs.Fenced, errs.Again, errs.Conflict, errs.MaybeDone, errs.Canceled:
		return "Something changed meanwhile: run it again"
	case errs.IO, errs.Corrupt:
		return "See sluice status, and the logs in the cluster's folder (log/)"
	}
	return ""
}
