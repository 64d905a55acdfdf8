package keeper

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// The processes that serve are this test's own program: what each of them does is said by the
// environment, in the order in which they are started; the last word holds for all further ones.
const (
	actsEnv  = "KEEPER_TEST_ACTS"
	livesEnv = "KEEPER_TEST_LIVES" // a file in which each of them leaves its number
)

func TestMain(m *testing.M) {
	if acts := os.Getenv(actsEnv); acts != "" {
		act(acts)
		os.Exit(9)
	}
	goleak.VerifyTestMain(m)
}

// act is the life of one process. None of them answers the kernel: to a keeper that is all the
// same.
func act(acts string) {
	lives, err := os.OpenFile(os.Getenv(livesEnv), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	check(err)
	fmt.Fprintln(lives, os.Getpid())
	text, err := os.ReadFile(lives.Name())
	check(err)
	list := strings.Split(acts, ",")
	what := list[min(strings.Count(string(text), "\n"), len(list))-1]
	if what == "mute" {
		os.Exit(3)
	}
	s, err := Join()
	check(err)
	switch what {
	case "fail":
		s.Failed("it does not work", "try it later")
		os.Exit(1)
	case "early":
		check(s.link.send(&message{State: stateServing}))
		idle()
	case "sleep":
		idle()
	}
	kernel, err := s.Connection()
	check(err)
	switch what {
	case "die":
		os.Exit(4)
	case "half":
		say(s, []byte(`{"state":"serv`))
	case "long":
		say(s, []byte(`{"state":"serving","text":"`+strings.Repeat("x", messageMax)+`"}`))
	case "nothing":
		say(s, []byte(`{}`))
	case "silent":
		check(s.link.conn.Close())
		idle()
	}
	check(s.Serving("life " + fmt.Sprint(strings.Count(string(text), "\n"))))
	switch what {
	case "crash":
		check(syscall.Kill(os.Getpid(), syscall.SIGKILL))
		idle()
	case "hang":
		check(syscall.Kill(os.Getpid(), syscall.SIGSTOP))
	}
	serve(s, kernel, what)
}

// say says something that is not a message, and goes on.
func say(s *Served, b []byte) {
	_, err := s.link.conn.Write(b)
	check(err)
	idle()
}

func idle() { time.Sleep(time.Hour) }

// serve does what a keeper orders, until the kernel has let go of the mount.
func serve(s *Served, kernel *os.File, what string) {
	for {
		select {
		case order, ok := <-s.Orders:
			switch {
			case !ok:
				os.Exit(5)
			case order == Leave:
			case what == "stubborn":
				s.Failed("it is not the moment", "")
			case what == "deaf":
			default:
				s.Handed()
				os.Exit(0)
			}
		case <-time.After(20 * time.Millisecond):
			fds := []unix.PollFd{{Fd: int32(kernel.Fd())}}
			if n, _ := unix.Poll(fds, 0); n > 0 {
				s.Ended()
				os.Exit(0)
			}
		}
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "the process of a test:", err)
		os.Exit(8)
	}
}
