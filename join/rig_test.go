package join

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
	"github.com/sluice-storage/sluice/meta/store"
)

// rig is a cluster's join service on loopback, with a registry in a metadata store.
type rig struct {
	testing.TB
	authority *identity.Authority
	dir       string
	registry  *store.Store
	server    *Server
	addr      string
	log       *lines
	ended     chan error
}

// lines is a log that a test reads.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) count(words string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), words)
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want(t testing.TB, err error, kind errs.Kind, words string) {
	t.Helper()
	if errs.KindOf(err) != kind || !strings.Contains(err.Error(), words) {
		t.Fatalf("%v, want %v with %q", err, kind, words)
	}
}

func newRig(t testing.TB, change func(o *Options)) *rig {
	t.Helper()
	r := &rig{TB: t, dir: filepath.Join(t.TempDir(), "keys"), log: &lines{}}
	var err error
	r.authority, err = identity.CreateAuthority(r.dir, identity.NewClusterID(), time.Now())
	fatal(t, err)
	engine := memkv.New(memkv.Options{})
	r.registry, err = store.New(t.Context(), engine, store.Options{Objects: metatest.NewObjects()})
	fatal(t, err)
	r.start(change)
	t.Cleanup(func() {
		r.stop()
		r.registry.Stop()
		_ = engine.Close()
	})
	return r
}

func (r *rig) start(change func(o *Options)) {
	r.Helper()
	o := Options{Authority: r.authority, Registry: r.registry, Name: "h1",
		Addresses: func() []string { return []string{"127.0.0.1:9400"} },
		Refresh:   10 * time.Millisecond, Log: slog.New(slog.NewTextHandler(r.log, nil)),
		Limits: Limits{PerSecond: 1e6, Burst: 1e6}}
	if change != nil {
		change(&o)
	}
	var err error
	r.server, err = NewServer(r.Context(), o)
	fatal(r, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	fatal(r, err)
	r.addr, r.ended = ln.Addr().String(), make(chan error, 1)
	server, ended := r.server, r.ended
	go func() { ended <- server.Serve(ln) }()
}

func (r *rig) stop() {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = r.server.Close(ctx) // half-open connections may be left, and are none of its business
	_ = r.server.http.Close()
	fatal(r, <-r.ended)
}

// token makes a token, and registers it.
func (r *rig) token(kind identity.Kind, name string, change func(t *meta.Token)) identity.Token {
	r.Helper()
	_, pin := r.authority.Generation()
	tok := identity.NewToken(kind, pin)
	m := meta.Token{ID: tok.ID, Hash: tok.SecretHash(), Kind: kind, Name: name, Uses: 1,
		Expires: time.Now().Add(time.Hour).UnixNano()}
	if kind == identity.Host {
		m.Roles = identity.RoleIod
	} else {
		m.Rights = identity.Rights{Path: "/proj", Squash: identity.SquashAll}
	}
	if change != nil {
		change(&m)
	}
	_, err := r.registry.CreateToken(r.Context(), meta.Caller{}, m)
	fatal(r, err)
	return tok
}

func (r *rig) join(t identity.Token, name string, key ed25519.PrivateKey) (
	*identity.Credential, error) {
	j, err := Join(r.Context(), r.addr, t, name, "", key)
	if err != nil {
		return nil, err
	}
	return j.Credential, nil
}

// member lets a new client join.
func (r *rig) member(name string) *identity.Credential {
	r.Helper()
	c, err := r.join(r.token(identity.Client, name, nil), "", identity.NewKey())
	fatal(r, err)
	return c
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("it never came true that %s", what)
}
