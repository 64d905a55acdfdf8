package main

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/admin/top"
)

// topLive is sluice top in a terminal.
type topLive struct {
	src      *topSource
	in, out  *os.File
	interval time.Duration
	screen   top.Screen

	before, now map[string]top.Sample
	view        *top.View
	paused      bool
}

// Escape sequences that every terminal of today knows.
const (
	termEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l" // another screen, no cursor, long lines end
	termLeave = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	termHome  = "\x1b[H"
	termClear = "\x1b[K" // to the end of the line
	termRest  = "\x1b[J" // to the end of the screen
)

// topFirst is how soon the first view comes: nobody likes to wait for an empty screen.
const topFirst = 300 * time.Millisecond

// run shows the view until q is pressed or ctx ends. The terminal is left as it was.
func (l *topLive) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	restore, err := l.enter()
	if err != nil {
		return err
	}
	defer func() { restore() }()

	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGWINCH, unix.SIGTSTP)
	defer signal.Stop(signals)
	keys := make(chan byte, 16)
	go readKeys(ctx, int(l.in.Fd()), keys)
	looks := make(chan map[string]top.Sample, 1)
	look := func() { looks <- l.src.look(ctx) }
	go look()
	next := time.NewTimer(topIntervalMax)
	defer next.Stop()
	first := true
	for {
		select {
		case <-ctx.Done():
			return nil
		case all := <-looks:
			l.take(all)
			wait := l.interval
			if first {
				first, wait = false, min(topFirst, wait)
			}
			next.Reset(wait)
		case <-next.C:
			go look()
			continue
		case key, ok := <-keys:
			if !ok || !l.press(key) {
				return nil // the terminal is gone, or enough was seen
			}
		case s := <-signals:
			if s != unix.SIGTSTP {
				break
			}
			restore()
			_ = unix.Kill(os.Getpid(), unix.SIGSTOP) // goes on here when it is continued
			if restore, err = l.enter(); err != nil {
				return err
			}
		}
		if err := l.draw(); err != nil {
			return err
		}
	}
}

// enter takes the terminal: keys come one by one and are not shown. Ctrl-C and ctrl-Z work.
func (l *topLive) enter() (restore func(), err error) {
	fd := int(l.in.Fd())
	was, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return func() {}, err
	}
	raw := *was
	raw.Lflag &^= unix.ICANON | unix.ECHO
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 0, 1 // a read waits for a tenth of a second at most
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &raw); err != nil {
		return func() {}, err
	}
	_, _ = l.out.WriteString(termEnter)
	return func() {
		_, _ = l.out.WriteString(termLeave)
		_ = unix.IoctlSetTermios(fd, unix.TCSETS, was)
	}, nil
}

// readKeys passes on what is typed, until ctx ends or the terminal is gone.
func readKeys(ctx context.Context, fd int, keys chan<- byte) {
	defer close(keys)
	var b [16]byte
	for ctx.Err() == nil {
		n, err := unix.Read(fd, b[:])
		if err != nil && err != syscall.EINTR && err != syscall.EAGAIN {
			return
		}
		if n > 0 && b[0] == '\x1b' {
			continue // an arrow or the like, which means nothing here
		}
		for _, key := range b[:max(n, 0)] {
			select {
			case keys <- key:
			case <-ctx.Done():
				return
			}
		}
	}
}

// take makes a view of the latest look.
func (l *topLive) take(all map[string]top.Sample) {
	l.before, l.now = l.now, all
	if l.before == nil || l.paused {
		return
	}
	l.view = top.Compute(l.src.name(), l.before, l.now, time.Now())
}

// press does what a key asks for, and tells whether to go on.
func (l *topLive) press(key byte) bool {
	s := &l.screen
	switch key {
	case 'q', 'Q', 3, 4:
		return false
	case 'h', '?':
		s.Help = !s.Help
		return true
	case ' ', 'p':
		l.paused = !l.paused
	case '+':
		l.interval = max(l.interval/2, topIntervalMin)
	case '-':
		l.interval = min(l.interval*2, topIntervalMax)
	case '\t':
		s.Page = (s.Page + 1) % top.Pages
	default:
		if i := strings.IndexByte("12345", key); i >= 0 {
			s.Page = top.Page(i)
		}
		if i := strings.IndexByte("aocfs", key); i >= 0 {
			s.Page = top.Page(i)
		}
		if i := strings.IndexByte("rbln", key); i >= 0 {
			s.Order = top.Order(i)
		}
	}
	s.Help = false
	return true
}

// draw shows the view as large as the terminal is at this moment. What was there is written over,
// so that nothing flickers.
func (l *topLive) draw() error {
	s := l.screen
	s.Width, s.Height = 80, 24
	if size, err := unix.IoctlGetWinsize(int(l.out.Fd()), unix.TIOCGWINSZ); err == nil &&
		size.Col > 0 && size.Row > 0 {
		s.Width, s.Height = int(size.Col), int(size.Row)
	}
	if l.paused {
		s.Note = "PAUSED: space goes on"
	}
	text := "looking at " + l.src.name() + " ...\n"
	if l.view != nil {
		text = top.Draw(l.view, s)
	}
	text = strings.TrimSuffix(text, "\n")
	_, err := l.out.WriteString(termHome + strings.ReplaceAll(text, "\n", termClear+"\n") +
		termClear + termRest)
	return err
}
