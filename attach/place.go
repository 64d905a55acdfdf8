package attach

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
)

// Place is the folder in which processes find each other's devices. Below it each device has a
// folder of its name:
//
//	spec      what was asked for: written before anything else, and never changed
//	state     what became of it: written by the process that serves
//	serve     locked by the process that serves, to its last moment
//	control   its socket
//	log       what it has to say
//
// and beside it a file NAME.lock, locked by who attaches or detaches that device.
type Place struct{ Dir string }

// DefaultPlace is where devices of this host are kept: what is there ends with the host's boot, as
// they do.
const DefaultPlace = "/run/sluice/attach"

// Spec is what was asked for.
type Spec struct {
	Name     string   `json:"name"`
	Target   string   `json:"target"`
	Device   int      `json:"device"` // the number that was asked for; netlink.Any: none
	ReadOnly bool     `json:"read_only"`
	Shared   bool     `json:"shared"`
	Args     []string `json:"args"` // of the process that serves
}

// Same tells whether two specs ask for the same device, whatever else they say of it.
func (s *Spec) Same(o *Spec) bool {
	return s.Name == o.Name && s.Target == o.Target && s.ReadOnly == o.ReadOnly &&
		s.Shared == o.Shared && (s.Device == o.Device || o.Device < 0)
}

// State is what became of it.
type State struct {
	Index     int       `json:"index"`
	Connected bool      `json:"connected"` // the kernel has it
	PID       int       `json:"pid"`       // of the last process that served it
	Since     time.Time `json:"since"`     // it was attached
	Lost      string    `json:"lost"`      // why it cannot be served any more; empty: it can
	Ending    bool      `json:"ending"`    // it is being detached: nobody is to serve it again
}

// What a name is made of; it does not begin with one of the last four. Its socket's path has a
// bound of 108 bytes.
const (
	nameMax   = 64
	nameRunes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.+@-"
)

// CheckName refuses what cannot be the name of a device.
func CheckName(name string) error {
	if len(name) == 0 || len(name) > nameMax || strings.ContainsFunc(name, isOther) ||
		strings.ContainsRune(".+@-", rune(name[0])) || strings.HasSuffix(name, lockSuffix) ||
		strings.HasSuffix(name, ".new") {
		return errs.Newf(errs.Invalid, "attach", name,
			"a name has letters, digits and _ . + @ -, and at most 64 of them")
	}
	return nil
}

// isOther tells whether a character cannot be part of a name.
func isOther(r rune) bool { return !strings.ContainsRune(nameRunes, r) }

const lockSuffix = ".lock"

// Folder is that of a device.
func (p Place) Folder(name string) string { return filepath.Join(p.Dir, name) }

// File is one of a device.
func (p Place) File(name, file string) string { return filepath.Join(p.Dir, name, file) }

// ControlFile and LogFile are the names of these.
const (
	ControlFile = "control"
	LogFile     = "log"
	specFile    = "spec"
	stateFile   = "state"
	serveFile   = "serve"
)

// Lock waits for the turn of whoever attaches or detaches a device.
func (p Place) Lock(ctx context.Context, name string) (unlock func(), err error) {
	if err := os.MkdirAll(p.Dir, 0o700); err != nil {
		return nil, errs.Wrap("attach.Lock", p.Dir, err)
	}
	path := p.Folder(name) + lockSuffix
	for {
		f, err := lockFile(ctx, path)
		if err != nil {
			return nil, errs.Wrap("attach.Lock", name, err)
		}
		if sameFile(f, path) {
			return func() {
				_ = os.Remove(path) // whoever waits for it sees that, and makes another
				_ = f.Close()
			}, nil
		}
		_ = f.Close()
	}
}

// Serve becomes the process that serves a device. With patience it waits for the one before to end;
// otherwise errs.Busy says that there is one. errs.NotFound says that there is no such device (any
// more).
func (p Place) Serve(ctx context.Context, name string, patience bool) (end func(), err error) {
	path := p.File(name, serveFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, errs.Wrap("attach.Serve", name, err)
	}
	if patience {
		err = blockLock(ctx, f)
	} else {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		err = errs.Newf(errs.Busy, "", "", "another process serves it")
	case err == nil && !sameFile(f, path):
		err = errs.Newf(errs.NotFound, "", "", "it was detached")
	}
	if err != nil {
		_ = f.Close()
		return nil, errs.Wrap("attach.Serve", name, err)
	}
	return func() { _ = f.Close() }, nil
}

// Served tells whether a process serves a device.
func (p Place) Served(name string) bool {
	f, err := os.OpenFile(p.File(name, serveFile), os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// lockLook is how often a lock is tried for by who may be told to stop.
const lockLook = 20 * time.Millisecond

func lockFile(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := waitLock(ctx, f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func waitLock(ctx context.Context, f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		if !wait.Sleep(ctx, lockLook) {
			return ctx.Err()
		}
	}
}

// blockLock waits for a lock that may be held for months, without looking for it all the time. When
// ctx ends first the file must not be used any more.
func blockLock(ctx context.Context, f *os.File) error {
	locked := make(chan error, 1)
	fd := int(f.Fd())
	go func() {
		for {
			if err := unix.Flock(fd, unix.LOCK_EX); err != unix.EINTR {
				locked <- err
				return
			}
		}
	}()
	select {
	case err := <-locked:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sameFile tells whether a path still is the file that was opened.
func sameFile(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}

// Make writes a spec down, and with it the device's folder.
func (p Place) Make(s *Spec) error {
	if err := os.MkdirAll(p.Folder(s.Name), 0o700); err != nil {
		return errs.Wrap("attach.Make", s.Name, err)
	}
	return p.write(s.Name, specFile, s)
}

// SetState writes down what became of a device.
func (p Place) SetState(name string, s *State) error { return p.write(name, stateFile, s) }

func (p Place) write(name, file string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	path := p.File(name, file)
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o600); err != nil {
		return errs.Wrap("attach", name, err)
	}
	return errs.Wrap("attach", name, os.Rename(path+".new", path))
}

// Spec reads what was asked for.
func (p Place) Spec(name string) (s Spec, err error) { return s, p.read(name, specFile, &s) }

// State reads what became of a device; of one that was never served it is the zero value.
func (p Place) State(name string) (s State, err error) {
	if err = p.read(name, stateFile, &s); errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return s, err
}

func (p Place) read(name, file string, v any) error {
	text, err := os.ReadFile(p.File(name, file))
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	return errs.Wrap("attach", name, err)
}

// List are the names of all devices.
func (p Place) List() (names []string, err error) {
	entries, err := os.ReadDir(p.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if _, err := os.Stat(p.File(e.Name(), specFile)); err == nil && e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, errs.Wrap("attach.List", p.Dir, err)
}

// Remove forgets a device. Who serves it, or waits to, sees that it is gone.
func (p Place) Remove(name string) error {
	// First what says that there is a device: who is killed on the way leaves none.
	err := os.Remove(p.File(name, specFile))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errs.Wrap("attach.Remove", name, errors.Join(err, os.RemoveAll(p.Folder(name))))
}
