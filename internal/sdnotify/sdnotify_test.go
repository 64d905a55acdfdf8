package sdnotify

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// manager is the other side: a socket that datagrams come to.
func manager(t *testing.T, name string) func() string {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return func() string {
		t.Helper()
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 8192)
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
}

func open(t *testing.T) *Notifier {
	t.Helper()
	n, err := Open()
	if err != nil || n == nil {
		t.Fatalf("%v, %v", n, err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

func TestMessages(t *testing.T) {
	abstract := fmt.Sprintf("@sdnotify-test-%d", os.Getpid())
	for _, name := range []string{filepath.Join(t.TempDir(), "s"), abstract} {
		next := manager(t, name)
		t.Setenv(socketEnv, name)
		n := open(t)
		for _, c := range []struct {
			err  error
			want string
		}{
			{n.Ready("all is well"), `^READY=1\nSTATUS=all is well$`},
			{n.Ready(""), `^READY=1$`},
			{n.Reloading("a new file"), `^RELOADING=1\nMONOTONIC_USEC=[0-9]{4,}\nSTATUS=a new file$`},
			{n.Stopping("two\nlines"), `^STOPPING=1\nSTATUS=two lines$`},
			{n.Status("working"), `^STATUS=working$`},
			{n.Alive(), `^WATCHDOG=1$`},
			{n.Status(strings.Repeat("x", 9999)), `^STATUS=x{1000}x{24}$`},
		} {
			if got := next(); c.err != nil || !regexp.MustCompile(c.want).MatchString(got) {
				t.Errorf("sent %q, %v; want %s", got, c.err, c.want)
			}
		}
	}
}

func TestEnvironmentIsTaken(t *testing.T) {
	manager(t, "@sdnotify-env-"+fmt.Sprint(os.Getpid()))
	for _, c := range []struct {
		usec, pid string
		want      time.Duration
	}{
		{"3000000", "", 3 * time.Second}, {"3000000", fmt.Sprint(os.Getpid()), 3 * time.Second},
		{"3000000", "1", 0}, {"", "", 0}, {"-5", "", 0}, {"soon", "", 0},
	} {
		t.Setenv(socketEnv, "@sdnotify-env-"+fmt.Sprint(os.Getpid()))
		t.Setenv(watchdogEnv, c.usec)
		t.Setenv(watchedEnv, c.pid)
		if got := open(t).Watchdog(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
		for _, name := range []string{socketEnv, watchdogEnv, watchedEnv} {
			if v, ok := os.LookupEnv(name); ok {
				t.Errorf("children would see %s=%s", name, v)
			}
		}
	}
}

func TestNobodyListens(t *testing.T) {
	t.Setenv(socketEnv, "")
	n, err := Open()
	if n != nil || err != nil {
		t.Fatalf("%v, %v", n, err)
	}
	if n.Ready("x") != nil || n.Reloading("x") != nil || n.Stopping("x") != nil || n.Alive() != nil ||
		n.Status("x") != nil || n.Watchdog() != 0 || n.Close() != nil {
		t.Fatal("a nil notifier does something")
	}
	for _, bad := range []string{"vsock:2:5", filepath.Join(t.TempDir(), "absent")} {
		t.Setenv(socketEnv, bad)
		if n, err := Open(); err == nil || n != nil {
			t.Errorf("%s was opened", bad)
		}
	}
}
