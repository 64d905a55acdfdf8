package join

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
)

// dial opens a plain connection.
func (r *rig) dial() net.Conn {
	r.Helper()
	c, err := net.Dial("tcp", r.addr)
	fatal(r, err)
	r.Cleanup(func() { c.Close() })
	return c
}

// TestSlowHandshakes: many that send nothing, or a byte now and then, keep nobody out, their number
// is bounded, and they are ended.
func TestSlowHandshakes(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Limits.Handshakes, o.Limits.ConnsPerAddr, o.Limits.Time = 5, 100, 2*time.Second
	})
	var idle []net.Conn
	for range 20 {
		idle = append(idle, r.dial())
	}
	r.member("ann")
	ended := func(c net.Conn) bool {
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		_, err := c.Read(make([]byte, 1))
		return err != nil && errs.KindOf(err) != errs.TimedOut
	}
	for i, c := range idle {
		if !ended(c) {
			t.Fatalf("connection %d is kept", i)
		}
	}
	eventually(t, "all places are free again", func() bool { return r.server.Counts().Refused >= 20 })
	r.member("bob")
}

// TestConnectionsOfOneAddress are bounded, and a place that is given back can be taken.
func TestConnectionsOfOneAddress(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Limits.ConnsPerAddr = 3 })
	var open []net.Conn
	for range 3 {
		open = append(open, r.dial())
	}
	_, err := r.join(r.token(identity.Client, "ann", nil), "", identity.NewKey())
	if err == nil {
		t.Fatal("a fourth connection")
	}
	open[0].Close()
	eventually(t, "a place is free", func() bool {
		_, err := r.join(r.token(identity.Client, "", nil), "bob", identity.NewKey())
		return err == nil || errs.KindOf(err) == errs.Exists
	})
}

// TestRandomBytes: whatever is sent, before and after the handshake, others are served.
func TestRandomBytes(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Limits.Time = time.Second })
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 8 {
		b := make([]byte, 10000)
		for j := range b {
			b[j] = byte(random.Uint32())
		}
		var c io.WriteCloser = r.dial()
		if i%2 == 1 {
			c = tls.Client(c.(net.Conn), &tls.Config{InsecureSkipVerify: true})
		}
		_, _ = c.Write(b)
		c.Close()
	}
	plain := r.dial()
	fmt.Fprint(plain, "GET / HTTP/1.0\r\n\r\n")
	_ = plain.SetReadDeadline(time.Now().Add(time.Minute))
	if text, _ := io.ReadAll(plain); strings.Contains(string(text), "200") {
		t.Fatalf("plain HTTP is answered: %s", text)
	}
	r.member("ann")
	eventually(t, "refusals are counted", func() bool { return r.server.Counts().Refused >= 5 })
}

// TestRequestsThatAreRefused: too large, of another method or path, no JSON, too much JSON.
func TestRequestsThatAreRefused(t *testing.T) {
	r := newRig(t, nil)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	t.Cleanup(client.CloseIdleConnections)
	for what, c := range map[string]struct {
		method, path, body string
		header             string
		status             int
	}{
		"get":         {"GET", pathJoin, "", "", 405},
		"path":        {"POST", "/v1/../etc", "{}", "", 404},
		"no json":     {"POST", pathJoin, "hello", "", 400},
		"empty":       {"POST", pathJoin, "{}", "", 400},
		"two":         {"POST", pathJoin, "{}{}", "", 400},
		"large":       {"POST", pathJoin, `{"name":"` + strings.Repeat("x", requestMax) + `"}`, "", 400},
		"no request":  {"POST", pathJoin, `{"token":1,"secret":"AAAAAAAAAAAAAAAAAAAAAA=="}`, "", 400},
		"header":      {"POST", pathJoin, "{}", strings.Repeat("h", 16<<10), 431},
		"certificate": {"POST", pathNotice, "{}", "", 403},
	} {
		q, err := http.NewRequest(c.method, "https://"+r.addr+c.path, strings.NewReader(c.body))
		fatal(t, err)
		if c.header != "" {
			q.Header.Set("X-Long", c.header)
		}
		resp, err := client.Do(q)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.status {
			t.Errorf("%s: %s %s, want %d", what, resp.Status, text, c.status)
		}
	}
	r.member("ann")
}

// TestPace: one address is held to its pace.
func TestPace(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Limits.PerSecond, o.Limits.Burst = 0.001, 2 })
	tok := identity.NewToken(identity.Client, r.token(identity.Client, "ann", nil).Pin)
	for range 2 {
		_, err := r.join(tok, "", identity.NewKey())
		want(t, err, errs.Forged, "")
	}
	_, err := r.join(tok, "", identity.NewKey())
	want(t, err, errs.Again, "too many requests")
}

func FuzzRequests(f *testing.F) {
	der, err := identity.NewRequest(identity.NewKey())
	fatal(f, err)
	for _, q := range []any{joinRequest{1, make([]byte, 16), "ann", "h1", der}, renewRequest{der},
		noticeRequest{7}} {
		b, err := json.Marshal(q)
		fatal(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var j joinRequest
		if decode(bytes.NewReader(b), requestMax, &j) == nil {
			_, _ = identity.ParseRequest(j.Request)
		}
		var g identity.Grant
		if decode(bytes.NewReader(b), answerMax, &g) == nil {
			_, _ = identity.NewCredential(identity.NewKey(), &g)
		}
		var n identity.Notice
		_ = decode(bytes.NewReader(b), answerMax, &n)
	})
}
