package device

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// alarm is a timer of the kernel's. The runtime's timers may be a millisecond late on an idle host,
// which is as long as an operation of a throttled device takes; and a goroutine that sleeps in the
// kernel keeps a processor from others for a while. A timer that is read like a socket does
// neither.
type alarm struct {
	file *os.File
	next *alarm // in alarms
}

// wait returns when d is over.
func (a *alarm) wait(d time.Duration) error {
	raw, err := a.file.SyscallConn()
	if err != nil {
		return err
	}
	set := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(d, 1)))}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = unix.TimerfdSettime(int(fd), 0, &set, nil)
	}); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	var count [8]byte
	_, err = a.file.Read(count[:])
	return err
}

// alarms are those that nobody waits for.
type alarms struct {
	mu     sync.Mutex
	free   *alarm
	closed bool
}

func (l *alarms) take() (*alarm, error) {
	l.mu.Lock()
	a := l.free
	if a != nil {
		l.free, a.next = a.next, nil
	}
	l.mu.Unlock()
	if a != nil {
		return a, nil
	}
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &alarm{file: os.NewFile(uintptr(fd), "alarm")}, nil
}

func (l *alarms) put(a *alarm) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = a.file.Close()
		return
	}
	a.next, l.free = l.free, a
}

func (l *alarms) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for a := l.free; a != nil; a = a.next {
		_ = a.file.Close()
	}
	l.free = nil
}
