package main

import (
	"errors"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-storage/sluice/vmtest/frame"
)

// drainMax is how long output is still taken after a script ended. Only a program that the script
// left in the background can hold its output open, and it lives on without it.
const drainMax = 500 * time.Millisecond

// table knows the commands that run.
type table struct {
	mu      sync.Mutex
	running map[uint32]int // the process group of each
}

func (t *table) add(id uint32, group int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running[id] = group
}

func (t *table) remove(id uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.running, id)
}

// kill ends a command with everything that it started and that did not leave its group. Between a
// command's end and its removal the number could be another group's only if process numbers went
// round in that moment.
func (t *table) kill(id uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if group, ok := t.running[id]; ok {
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
}

// stream sends what a command prints, in pieces that fit a frame.
type stream struct {
	a    *agent
	kind frame.Kind
	id   uint32
}

// Write never fails: a command does not end because nobody listens.
func (s stream) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		piece := rest[:min(len(rest), frame.PieceBytes)]
		s.a.send(frame.Frame{Kind: s.kind, ID: s.id, Payload: piece})
		rest = rest[len(piece):]
	}
	return len(p), nil
}

// start begins a command, in a session of its own, and returns; its Exit follows.
func (a *agent) start(id uint32, c frame.Command) {
	cmd := exec.Command("/bin/bash", "-c", c.Script)
	cmd.Env = c.Env
	cmd.Dir = c.Dir
	cmd.Stdout = stream{a, frame.Stdout, id}
	cmd.Stderr = stream{a, frame.Stderr, id}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = drainMax
	if err := cmd.Start(); err != nil {
		a.sendJSON(frame.Exit, id, frame.Status{Code: 127, Error: err.Error()})
		return
	}
	a.table.add(id, cmd.Process.Pid)
	go func() {
		err := cmd.Wait()
		a.table.remove(id)
		a.sendJSON(frame.Exit, id, status(err))
	}()
}

// status says how a command ended in a shell's numbers.
func status(err error) frame.Status {
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return frame.Status{}
	case !errors.As(err, &exit):
		return frame.Status{Code: 127, Error: err.Error()}
	}
	if w, ok := exit.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return frame.Status{Code: 128 + int(w.Signal())}
	}
	return frame.Status{Code: exit.ExitCode()}
}
