package supervise

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// process is one child over all its lives.
type process struct {
	group *Group
	spec  Spec
	stop  chan struct{} // closed when the process is to end
	asked sync.Once     // for closing it
	done  chan struct{} // closed when it has ended for good

	child *os.Process // guarded by group.mu, like note
	note  Process
}

// start forks once, on the group's thread.
func (p *process) start() (*exec.Cmd, error) {
	cmd := exec.Command(p.spec.Path, p.spec.Args...)
	cmd.Env = append(os.Environ(), p.spec.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:   true, // an interrupt typed at the terminal is the supervisor's to handle
		Pdeathsig: p.spec.DeathSignal,
	}
	if p.spec.Log != "" {
		log, err := openLog(p.spec.Log)
		if err != nil {
			return nil, err
		}
		defer log.Close()
		cmd.Stdout, cmd.Stderr = log, log
	}
	result := make(chan error)
	p.group.starter <- func() { result <- cmd.Start() }
	if err := <-result; err != nil {
		return nil, errs.Wrap("supervise.Start", p.spec.Name, err)
	}
	p.group.change(func() {
		p.child = cmd.Process
		p.note.PID, p.note.Status, p.note.Since = cmd.Process.Pid, Running, time.Now()
	})
	p.group.opts.Logger.Info("started", "process", p.spec.Name, "pid", cmd.Process.Pid)
	return cmd, nil
}

func openLog(name string) (*os.File, error) {
	if info, err := os.Stat(name); err == nil && info.Size() > LogMax {
		if err := os.Rename(name, name+".1"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}

// run waits for the child and starts it again until it is to stop.
func (p *process) run(cmd *exec.Cmd) {
	defer close(p.done)
	wait := p.group.opts.BackoffMin
	for {
		began := time.Now()
		_ = cmd.Wait() // the state says more than the error
		exit := p.exitOf(cmd, began)
		log := p.group.opts.Logger.With("process", p.spec.Name, "pid", exit.PID, "how", exit.How())
		if p.isStopping() || p.spec.MayEnd && exit.well() {
			log.Info("ended")
			p.group.change(func() { p.note.ended(exit, Stopped) })
			return
		}
		log.Warn("died; it is started again")
		if exit.Ran() >= p.group.opts.StableAfter {
			wait = p.group.opts.BackoffMin
		}
		p.group.change(func() { p.note.ended(exit, Waiting) })
		if cmd = p.startAgain(&wait); cmd == nil {
			p.group.change(func() { p.note.Status = Stopped })
			return
		}
	}
}

// startAgain waits and forks until it succeeds; nil when the process is to stop meanwhile.
func (p *process) startAgain(wait *time.Duration) *exec.Cmd {
	for {
		timer := time.NewTimer(*wait)
		*wait = min(2**wait, p.group.opts.BackoffMax)
		select {
		case <-p.stop:
			timer.Stop()
			return nil
		case <-timer.C:
		}
		cmd, err := p.start()
		if err == nil {
			p.group.change(func() { p.note.Restarts++ })
			return cmd
		}
		p.group.opts.Logger.Error("cannot start", "process", p.spec.Name, "err", err)
		p.group.change(func() { p.note.ended(Exit{At: time.Now(), Said: err.Error()}, Waiting) })
	}
}

func (p *process) isStopping() bool {
	select {
	case <-p.stop:
		return true
	default:
		return false
	}
}

// exitOf tells how a child ended.
func (p *process) exitOf(cmd *exec.Cmd, began time.Time) Exit {
	now := time.Now()
	e := Exit{At: now, PID: cmd.Process.Pid, RanMs: now.Sub(began).Milliseconds()}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		e.Signal = signalName(status.Signal())
		return e
	}
	e.Code = cmd.ProcessState.ExitCode()
	if e.Code != 0 && p.spec.Log != "" {
		e.Said = lastLine(p.spec.Log)
	}
	return e
}

// lastLine is what a failing program said last, which mostly is why it failed.
func lastLine(name string) string {
	const tail, lineMax = 4096, 300
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, err = f.Seek(max(0, size-tail), io.SeekStart)
		if err != nil {
			return ""
		}
	}
	text, err := io.ReadAll(io.LimitReader(f, tail))
	if err != nil {
		return ""
	}
	last := ""
	for line := range strings.Lines(string(bytes.TrimSpace(text))) {
		if line[0] != ' ' && line[0] != '\t' { // indented lines belong to the one before
			last = strings.TrimSpace(line)
		}
	}
	return strings.ToValidUTF8(last[:min(len(last), lineMax)], "?")
}

// terminate asks the child to end, and insists when it takes too long. A child that was being
// forked when the group began to stop is met by a later round.
func (p *process) terminate(ctx context.Context) {
	insist := time.NewTimer(p.spec.StopMax)
	defer insist.Stop()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	var asked *os.Process
	for {
		if child := p.living(); child != nil && child != asked {
			asked = child
			_ = child.Signal(syscall.SIGTERM) // it fails for a child that has just ended: fine
		}
		select {
		case <-p.done:
			return
		case <-again.C:
		case <-insist.C:
			p.kill()
			return
		case <-ctx.Done():
			p.kill()
			return
		}
	}
}

// kill ends the child without asking, however often it takes until the last fork is met.
func (p *process) kill() {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		if child := p.living(); child != nil {
			_ = child.Kill()
		}
		select {
		case <-p.done:
			return
		case <-again.C:
		}
	}
}

func (p *process) living() *os.Process {
	p.group.mu.Lock()
	defer p.group.mu.Unlock()
	if p.note.Status != Running {
		return nil
	}
	return p.child
}
