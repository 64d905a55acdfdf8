package identity

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// local is a Source that has the authority at hand and writes nothing down.
type local struct {
	a       *Authority
	denied  []Serial
	version uint64
	away    atomic.Bool
	renewed atomic.Int32
}

func (l *local) Renew(_ context.Context, c *Credential, der []byte) (*Grant, error) {
	if l.away.Load() {
		return nil, errs.New(errs.Disconnected, "", "", nil)
	}
	now := time.Now()
	if _, err := trustOf(l.a).Verify(c.Certificate, now, Host, Client); err != nil {
		return nil, err
	}
	r, err := ParseRequest(der)
	if err != nil {
		return nil, err
	}
	l.renewed.Add(1)
	return l.grant(r, c.Kind, c.Name, now)
}

func (l *local) grant(r *Request, kind Kind, name string, now time.Time) (*Grant, error) {
	chain, err := l.a.Issue(r, kind, name, Plan(now), now)
	g := &Grant{Cluster: l.a.Cluster(), Kind: kind, Name: name, Certificate: chain, Now: now,
		Authorities: RawChain(l.a.Roots()), Addresses: []string{"h1:9400"}, Join: []string{"h1:9401"}}
	if kind == Client {
		g.Rights = &Rights{Path: "/"}
	} else {
		g.Roles = RoleIod
	}
	return g, err
}

func (l *local) Notice(_ context.Context, c *Credential, denials uint64) (*Notice, error) {
	if l.away.Load() {
		return nil, errs.New(errs.Disconnected, "", "", nil)
	}
	n := &Notice{Authorities: RawChain(l.a.Roots()), Denials: l.version, Addresses: c.Addresses,
		Join: c.Join}
	if n.Same = denials == l.version; !n.Same {
		n.Denied = slices.Clone(l.denied)
	}
	return n, nil
}

// credential makes one, and its file.
func (l *local) credential(t testing.TB, kind Kind, name string) (*Credential, string) {
	t.Helper()
	key := NewKey()
	der, err := NewRequest(key)
	fatal(t, err)
	r, err := ParseRequest(der)
	fatal(t, err)
	g, err := l.grant(r, kind, name, time.Now())
	fatal(t, err)
	c, err := NewCredential(key, g)
	fatal(t, err)
	file := filepath.Join(t.TempDir(), "folder", "c.json")
	fatal(t, c.Write(file))
	return c, file
}

func newLocal(t testing.TB) *local {
	t.Helper()
	a, err := CreateAuthority(filepath.Join(t.TempDir(), "keys"), NewClusterID(), time.Now())
	fatal(t, err)
	return &local{a: a, version: 1}
}

var silent = slog.New(slog.DiscardHandler)

func TestCredentialFiles(t *testing.T) {
	l := newLocal(t)
	c, file := l.credential(t, Client, "ann")
	got, err := ReadCredential(file)
	fatal(t, err)
	if got.Peer() != c.Peer() || got.Addresses[0] != "h1:9400" || got.Rights.Path != "/" {
		t.Fatalf("%+v", got)
	}
	info, err := os.Stat(file)
	fatal(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v", info.Mode())
	}
	fatal(t, os.Chmod(file, 0o644))
	_, err = ReadCredential(file)
	want(t, err, errs.Perm, "chmod 600")
	fatal(t, os.Chmod(file, 0o600))
	fatal(t, os.WriteFile(file, []byte("{}"), 0o600))
	_, err = ReadCredential(file)
	want(t, err, errs.Version, "format 0")
	_, err = ReadCredential(file + ".none")
	want(t, err, errs.NotFound, "")

	_, other := l.credential(t, Client, "bob")
	b, err := ReadCredential(other)
	fatal(t, err)
	for words, change := range map[string]func(x *Credential){
		"belong together": func(x *Credential) { x.Key = b.Key },
		"certificate is":  func(x *Credential) { x.Name = "eve" },
		"authorities":     func(x *Credential) { x.Authorities = nil },
		"no authority":    func(x *Credential) { x.Cluster = NewClusterID() },
		"no address":      func(x *Credential) { x.Join = []string{"h1"} },
		"without rights":  func(x *Credential) { x.Rights = nil },
		"addresses":       func(x *Credential) { x.Addresses = make([]string, 65) },
	} {
		x := *c
		change(&x)
		want(t, x.check(), errs.Invalid, words)
	}
}

// TestRenewal: a certificate is renewed when two thirds of its life are over, whatever fails in
// between, and those who connect use the new one at once.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocal(t)
		first, file := l.credential(t, Host, "h1")
		k, err := NewKeeper(file, KeeperOptions{Source: l, Poll: time.Hour, Log: silent})
		fatal(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { k.Run(ctx); close(done) }()
		time.Sleep(Life*2/3 - 25*time.Hour)
		if l.renewed.Load() != 0 {
			t.Fatal("renewed long before its time")
		}
		l.away.Store(true)
		time.Sleep(10 * 24 * time.Hour)
		if k.Credential().Peer() != first.Peer() {
			t.Fatal("renewed by nobody")
		}
		l.away.Store(false)
		time.Sleep(2 * time.Hour)
		second := k.Credential()
		if l.renewed.Load() != 1 || second.Peer().Serial == first.Peer().Serial {
			t.Fatalf("renewed %d times", l.renewed.Load())
		}
		if shown, err := k.Certificate(); err != nil || shown.Leaf.SerialNumber.Cmp(
			second.TLS().Leaf.SerialNumber) != 0 {
			t.Fatal("an old certificate is shown")
		}
		onDisk, err := ReadCredential(file)
		if err != nil || onDisk.Peer() != second.Peer() {
			t.Fatal("the file is an old one", err)
		}
		time.Sleep(2 * Life)
		if _, err := k.Certificate(); err != nil || l.renewed.Load() < 3 {
			t.Fatalf("after years: %d renewals, %v", l.renewed.Load(), err)
		}
		l.away.Store(true)
		time.Sleep(2 * Life)
		_, err = k.Certificate()
		want(t, err, errs.Expired, "join again")
		stop()
		<-done
	})
}

// TestKeepersShareAFile: one renews, the other takes it over.
func TestKeepersShareAFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocal(t)
		_, file := l.credential(t, Client, "ann")
		ctx, stop := context.WithCancel(t.Context())
		var keepers []*Keeper
		for range 3 {
			k, err := NewKeeper(file, KeeperOptions{Source: l, Poll: time.Hour, Log: silent})
			fatal(t, err)
			keepers = append(keepers, k)
		}
		time.Sleep(Life * 3 / 4)
		for _, k := range keepers { // flock(2) is no wait that a bubble can see: one after the other
			k.Refresh(ctx)
			fatal(t, k.Renew(ctx))
		}
		if l.renewed.Load() != 1 {
			t.Fatalf("renewed %d times", l.renewed.Load())
		}
		for _, k := range keepers {
			if k.Credential().Peer() != keepers[0].Credential().Peer() {
				t.Error("two certificates are in use")
			}
		}
		stop()
	})
}

// TestNotices: denials and other authorities are heard of, and a rotation leads to a renewal.
func TestNotices(t *testing.T) {
	l := newLocal(t)
	_, file := l.credential(t, Host, "h1")
	bob, _ := l.credential(t, Client, "bob")
	k, err := NewKeeper(file, KeeperOptions{Source: l, Log: silent})
	fatal(t, err)
	ctx := t.Context()
	k.Refresh(ctx)
	_, err = k.Verify(bob.Certificate, Client)
	fatal(t, err)
	l.denied, l.version = []Serial{bob.Peer().Serial}, 2
	k.Refresh(ctx)
	_, err = k.Verify(bob.Certificate, Client)
	want(t, err, errs.Perm, "revoked")
	k.Refresh(ctx) // nothing new: the list stays
	_, err = k.Verify(bob.Certificate, Client)
	want(t, err, errs.Perm, "revoked")

	if k.due(time.Now()) {
		t.Fatal("due for no reason")
	}
	fatal(t, l.a.Rotate(SigningKey, time.Now()))
	k.Refresh(ctx)
	if !k.due(time.Now()) || len(k.Trust().Roots()) != 2 {
		t.Fatal("a rotation is not noticed")
	}
	fatal(t, k.Renew(ctx))
	if k.due(time.Now()) || !k.Credential().Current() {
		t.Fatal("still by the old authority")
	}
	fatal(t, l.a.Retire(SigningKey))
	k.Refresh(ctx)
	if len(k.Trust().Roots()) != 1 {
		t.Fatal("the old authority is believed")
	}
	onDisk, err := ReadCredential(file)
	if err != nil || len(onDisk.Authorities) != 1 {
		t.Fatal("the file has the old authority", err)
	}
}

// TestTLS: a host and a client meet over TLS; each refuses who is not believed.
func TestTLS(t *testing.T) {
	l := newLocal(t)
	keeper := func(l *local, kind Kind, name string) *Keeper {
		_, file := l.credential(t, kind, name)
		k, err := NewKeeper(file, KeeperOptions{Log: silent})
		fatal(t, err)
		return k
	}
	host, client := keeper(l, Host, "h1"), keeper(l, Client, "ann")
	stranger := keeper(newLocal(t), Client, "ann")
	meet := func(server, client *tls.Config) (error, error) {
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		served := make(chan error, 1)
		go func() {
			c := tls.Server(a, server)
			err := c.HandshakeContext(t.Context())
			_ = c.SetDeadline(time.Now().Add(time.Second)) // an alert that nobody reads
			_, _ = c.Write([]byte{1})
			_ = a.Close()
			served <- err
		}()
		c := tls.Client(b, client)
		err := c.HandshakeContext(t.Context())
		if err == nil {
			_, err = c.Read(make([]byte, 1))
		}
		_ = b.Close()
		return <-served, err
	}
	if s, c := meet(host.ServerTLS(), client.ClientTLS()); s != nil || c != nil {
		t.Fatal(s, c)
	}
	if s, c := meet(host.ServerTLS(), stranger.ClientTLS()); s == nil || c == nil {
		t.Fatal("a stranger is served, or trusts:", s, c)
	}
	if _, c := meet(client.ServerTLS(), client.ClientTLS()); c == nil {
		t.Fatal("a client is taken for a host")
	}
	if s, _ := meet(host.ServerTLS(), &tls.Config{InsecureSkipVerify: true}); s == nil {
		t.Fatal("who shows nothing is served")
	}
	host.Trust().SetDenied([]Serial{client.Credential().Peer().Serial})
	if s, _ := meet(host.ServerTLS(), client.ClientTLS()); s == nil {
		t.Fatal("one that was revoked is served")
	}
}

func FuzzCredential(f *testing.F) {
	l := newLocal(f)
	c, _ := l.credential(f, Client, "ann")
	text, err := c.encode()
	fatal(f, err)
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		if c, err := parseCredential(text); err == nil && (c.TLS() == nil || len(c.Roots()) == 0) {
			t.Fatal("a credential that proves nothing")
		}
	})
}
