package keeper

import (
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"golang.org/x/sys/unix"
)

// life is one process that serves, or is about to.
type life struct {
	cmd    *exec.Cmd
	talk   *link
	said   chan message // what it says; closed when it says no more
	ended  chan error   // how it ended
	quit   chan struct{}
	serves bool
	handed bool // it ends because it was asked to hand over
	over   bool // it ends because the mount is gone

	silentMax time.Duration // how long it may live when it says no more
	garbled   error         // what it said was not understood; set before ended
}

// begin starts a process. It gets a socket as descriptor 3 and the memory as 4; it is told to end
// when the keeper dies, and then unmounts by itself.
func begin(path string, memory *os.File, o *Options) (*life, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	own, theirs := os.NewFile(uintptr(pair[0]), "keeper"), os.NewFile(uintptr(pair[1]), "served")
	defer theirs.Close()
	conn, err := net.FileConn(own)
	_ = own.Close()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, o.Args...)
	cmd.Args[0] = os.Args[0]
	cmd.Env, cmd.Stdout, cmd.Stderr = o.Env, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{theirs, memory}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:   true, // an interrupt typed at the terminal is the keeper's to handle
		Pdeathsig: syscall.SIGTERM,
	}
	if err := cmd.Start(); err != nil {
		_ = conn.Close()
		return nil, err
	}
	l := &life{cmd: cmd, talk: &link{conn.(*net.UnixConn)}, said: make(chan message, 16),
		ended: make(chan error, 1), quit: make(chan struct{}), silentMax: o.StopMax}
	go l.hear(l.said)
	return l, nil
}

// hear passes on what the process says, and then how it ended: nothing that it said is missed. One
// that says what nobody understands is not waited for: it may go on for ever, and serve nobody.
func (l *life) hear(said chan<- message) {
	for {
		m, f, err := l.talk.receive()
		if f != nil {
			_ = f.Close() // nothing is expected
		}
		if errs.KindOf(err) == errs.Protocol {
			l.garbled = err
			l.kill()
		}
		if err != nil {
			break
		}
		select {
		case said <- m:
		case <-l.quit:
		}
	}
	close(said)
	late := time.AfterFunc(l.silentMax, l.kill)
	err := l.cmd.Wait()
	late.Stop()
	if l.garbled != nil {
		l.ended <- l.garbled
		return
	}
	if state := l.cmd.ProcessState; state != nil {
		err = &exitState{state.String()}
	}
	l.ended <- err
}

// exitState is how a process ended, in words.
type exitState struct{ text string }

func (e *exitState) Error() string { return e.text }

// channels are what is to be waited for of a process; nil where there is none. Its end is heard of
// when all was heard that it said.
func (l *life) channels() (said <-chan message, ended <-chan error) {
	if l == nil {
		return nil, nil
	}
	if l.said != nil {
		return l.said, nil
	}
	return nil, l.ended
}

func (l *life) send(m *message) { _ = l.talk.send(m) } // one that does not listen is about to end

func (l *life) sendFile(m *message, f *os.File) error { return l.talk.sendFile(m, f) }

// kill ends the process without asking.
func (l *life) kill() {
	if l != nil {
		_ = l.cmd.Process.Kill()
	}
}

// close ends the conversation with a process that has ended.
func (l *life) close() {
	close(l.quit)
	_ = l.talk.conn.Close()
}
