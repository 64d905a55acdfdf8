package keeper

import (
	"net"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-storage/sluice/errs"
	"golang.org/x/sys/unix"
)

// pair is the two ends of a conversation.
func pair(t *testing.T) (a, b *link) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*link
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "end")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		t.Cleanup(func() { _ = c.Close() })
		ends[i] = &link{c.(*net.UnixConn)}
	}
	return ends[0], ends[1]
}

// TestMessages: what is said is heard, one message at a time, with its file; a text that is too
// long is cut, never the message.
func TestMessages(t *testing.T) {
	a, b := pair(t)
	if err := a.send(&message{State: stateServing, Text: "here"}); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := a.sendFile(&message{State: stateServe}, f); err != nil {
		t.Fatal(err)
	}
	awkward := strings.Repeat("\x00é", messageMax)
	if err := a.send(&message{State: stateFailed, Text: awkward, Advice: awkward}); err != nil {
		t.Fatal(err)
	}
	if m, f, err := b.receive(); err != nil || f != nil || m != (message{State: stateServing,
		Text: "here"}) {
		t.Fatal(m, f, err)
	}
	m, got, err := b.receive()
	if err != nil || got == nil || m.State != stateServe {
		t.Fatal(m, got, err)
	}
	_ = got.Close()
	m, _, err = b.receive()
	if err != nil || len(m.Text) < textMax/2 || len(m.Text) > textMax || !utf8.ValidString(m.Text) {
		t.Fatal(len(m.Text), err)
	}
	_ = a.conn.Close()
	if _, _, err := b.receive(); err == nil || errs.KindOf(err) == errs.Protocol {
		t.Fatalf("the end of the conversation: %v", err)
	}
}

// TestNoMessages: what is not a message is said to be none, and a file that came along is closed.
func TestNoMessages(t *testing.T) {
	a, b := pair(t)
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	before := descriptors(t)
	for _, text := range []string{"x", `{"state":`, `{"state":""}`, "[]", "null",
		`{"state":"serve","text":"` + strings.Repeat("x", messageMax) + `"}`} {
		_, _, err := a.conn.WriteMsgUnix([]byte(text), unix.UnixRights(int(f.Fd())), nil)
		if err != nil {
			t.Fatal(err)
		}
		if m, f, err := b.receive(); errs.KindOf(err) != errs.Protocol || f != nil {
			t.Errorf("%.20s: %v, %v, %v", text, m, f, err)
		}
	}
	if after := descriptors(t); after != before {
		t.Fatalf("%d descriptors are open, and were %d", after, before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// FuzzMessage: whatever is said is a message that can be said again, or an error.
func FuzzMessage(f *testing.F) {
	for _, m := range []message{{State: stateServe}, {State: stateFailed, Text: "\xff", Advice: "é"}} {
		b, err := m.encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		if err != nil {
			if errs.KindOf(err) != errs.Protocol || m != (message{}) {
				t.Fatal(m, err)
			}
			return
		}
		said, err := m.encode()
		if err != nil || len(said) > messageMax && len(m.State) < textMax {
			t.Fatal(len(said), err)
		}
		again, err := decode(said)
		if err != nil || again.State != m.State || len(m.Text) <= textMax && again.Text != m.Text {
			t.Fatalf("%+v, said again: %+v, %v", m, again, err)
		}
	})
}
