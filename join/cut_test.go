package join

import (
	"io"
	"net"
	"testing"

	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
)

// cutter passes connections on to the service, and cuts each when so many bytes have come back.
func cutter(t *testing.T, to string, bytes int64) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	fatal(t, err)
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", to)
			if err != nil {
				c.Close()
				continue
			}
			go func() { _, _ = io.Copy(s, c); s.Close() }()
			go func() {
				_, _ = io.CopyN(c, s, bytes)
				// What the joiner has sent by now arrives: its answer is lost, not its request.
				_ = c.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, s)
				c.Close()
			}()
		}
	}()
	return ln.Addr().String()
}

// TestAnswersThatAreLost: wherever the connection is cut, in the handshake, behind the request or
// within the answer, the joiner repeats it, and in the end the token was used once.
func TestAnswersThatAreLost(t *testing.T) {
	r := newRig(t, nil)
	tok, key := r.token(identity.Client, "ann", nil), identity.NewKey()
	lost := 0
	for bytes := int64(0); ; bytes += 400 {
		j, err := Join(t.Context(), cutter(t, r.addr, bytes), tok, "", "", key)
		if err != nil {
			lost++
			continue
		}
		if j.Credential.Name != "ann" || lost < 3 {
			t.Fatalf("%s after %d cuts", j.Credential.Name, lost)
		}
		break
	}
	m, err := r.registry.GetMember(t.Context(), caller, identity.Client, "ann")
	fatal(t, err)
	if len(m.Certificates) < 2 {
		t.Fatal("no answer was lost: the service has never been asked in vain")
	}
	list, err := r.registry.ListTokens(t.Context(), caller, 0, meta.MemberPageMax)
	fatal(t, err)
	if len(list) != 1 || list[0].Used != 1 {
		t.Fatalf("%+v", list)
	}
}
