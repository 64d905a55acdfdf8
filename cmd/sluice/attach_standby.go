package main

import (
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-storage/sluice/attach"
)

// standbys keeps one process of the same program waiting for the death of this one. It is started
// as soon as this one serves; one that dies is replaced. When this process dies the one that waits
// has the lock, goes on with the device, and starts the next.
type standbys struct {
	spec *attach.Spec
	log  *slog.Logger
	out  *os.File // where they print
	quit chan struct{}

	mu      sync.Mutex
	child   *exec.Cmd // nil: there is none
	stopped bool
	over    sync.WaitGroup
}

func newStandbys(spec *attach.Spec, log *slog.Logger, out *os.File) *standbys {
	return &standbys{spec: spec, log: log, out: out, quit: make(chan struct{})}
}

// standbyPause is how long it waits before it starts one: whoever has attached the device is
// reading its first blocks, and one that dies at once must not keep a host busy.
const standbyPause = time.Second

func (s *standbys) start() { s.over.Go(s.run) }

func (s *standbys) run() {
	runtime.LockOSThread() // the mark of a flusher is the thread's
	for {
		select {
		case <-s.quit:
			return
		case <-time.After(standbyPause):
		}
		child, err := s.begin()
		if err != nil {
			s.log.Error("nobody stands by", "err", err)
			continue
		}
		if child == nil {
			return
		}
		err = child.Wait()
		s.mu.Lock()
		s.child = nil
		s.mu.Unlock()
		select {
		case <-s.quit:
		default:
			s.log.Warn("the process that stood by has died", "how", err)
		}
	}
}

// begin starts a process, unless they are not wanted any more.
func (s *standbys) begin() (*exec.Cmd, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	child := exec.Command(self, withServe(s.spec.Args, "--standby")...)
	child.Env = keptEnv()
	child.Stdout, child.Stderr = s.out, s.out
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it must outlive this one
	if err := child.Start(); err != nil {
		return nil, err
	}
	s.child = child
	return child, nil
}

// stop ends the one that waits.
func (s *standbys) stop() {
	s.mu.Lock()
	if !s.stopped {
		s.stopped = true
		close(s.quit)
	}
	if s.child != nil {
		_ = s.child.Process.Kill() // it has nothing to lose
	}
	s.mu.Unlock()
	s.over.Wait()
}
