package join

import (
	"crypto/tls"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
)

func TestJoin(t *testing.T) {
	r := newRig(t, nil)
	c := r.member("ann")
	if c.Kind != identity.Client || c.Name != "ann" || c.Rights.Path != "/proj" ||
		c.Rights.Squash != identity.SquashAll || c.Addresses[0] != "127.0.0.1:9400" ||
		c.Join[0] != r.addr || c.Cluster != r.authority.Cluster() {
		t.Fatalf("%+v", c)
	}
	h, err := r.join(r.token(identity.Host, "", nil), "h2", identity.NewKey())
	fatal(t, err)
	if h.Roles != identity.RoleIod || h.Rights != nil || h.Name != "h2" {
		t.Fatalf("%+v", h)
	}
	for want, tok := range map[string]identity.Token{"bob": r.token(identity.Client, "bob", nil),
		"laptop": r.token(identity.Client, "", nil)} {
		j, err := Join(t.Context(), r.addr, tok, "", "laptop", identity.NewKey())
		if err != nil || j.Credential.Name != want {
			t.Fatalf("%+v, %v: want %s", j, err, want)
		}
	}
	m, err := r.registry.GetMember(t.Context(), caller, identity.Client, "ann")
	fatal(t, err)
	if len(m.Certificates) != 1 || m.Certificates[0].Serial != c.Peer().Serial {
		t.Fatalf("%+v", m)
	}
	if n := r.server.Counts(); n.Joined != 4 || n.Refused != 0 {
		t.Fatalf("%+v", n)
	}
}

// TestRepeatedJoin: a joiner that died, or whose answer was lost, goes on with its key.
func TestRepeatedJoin(t *testing.T) {
	r := newRig(t, nil)
	tok := r.token(identity.Client, "ann", nil)
	file := filepath.Join(t.TempDir(), "c", "client.json")
	p, err := Begin(file, tok)
	fatal(t, err)
	first, err := r.join(tok, "", p.Key)
	fatal(t, err)
	// It is killed here, and both sides begin anew.
	r.stop()
	r.start(nil)
	again, err := Begin(file, tok)
	fatal(t, err)
	if !again.Key.Equal(p.Key) {
		t.Fatal("another key")
	}
	second, err := r.join(tok, "", again.Key)
	fatal(t, err)
	if second.Name != first.Name {
		t.Fatalf("%+v", second)
	}
	fatal(t, second.Write(file))
	fatal(t, again.Done())
	fatal(t, again.Done())
	if _, err := os.Stat(file + ".joining"); !os.IsNotExist(err) {
		t.Fatal("something is left", err)
	}
	other := r.token(identity.Client, "bob", nil)
	next, err := Begin(file, other)
	fatal(t, err)
	if next.Key.Equal(p.Key) {
		t.Fatal("one key for two tokens")
	}
	list, err := r.registry.ListTokens(t.Context(), caller, 0, 9)
	fatal(t, err)
	for _, x := range list {
		if x.ID == tok.ID && x.Used != 1 {
			t.Fatalf("%+v", x)
		}
	}
	_, err = r.join(tok, "", identity.NewKey())
	want(t, err, errs.Quota, "used up")
}

// TestTokensThatAreRefused: each is, is counted, and is logged once.
func TestTokensThatAreRefused(t *testing.T) {
	r := newRig(t, nil)
	good := r.token(identity.Client, "ann", nil)
	key := identity.NewKey()
	wrong := good
	wrong.Secret[0]++
	_, err := r.join(wrong, "", key)
	want(t, err, errs.Forged, "not known here")
	unknown := identity.NewToken(identity.Client, good.Pin)
	_, err = r.join(unknown, "", key)
	want(t, err, errs.Forged, "not known here")
	_, err = r.join(good, "bob", key)
	want(t, err, errs.Invalid, "for the name ann")
	late := r.token(identity.Client, "late", func(x *meta.Token) {
		x.Expires = time.Now().Add(50 * time.Millisecond).UnixNano()
	})
	time.Sleep(100 * time.Millisecond)
	_, err = r.join(late, "", key)
	want(t, err, errs.Expired, "run out")
	_, err = r.join(good, "", key)
	fatal(t, err)
	_, err = r.join(good, "", identity.NewKey()) // replayed by who has seen the token
	want(t, err, errs.Quota, "used up")
	if n := r.server.Counts(); n.Refused != 5 || n.Joined != 1 {
		t.Fatalf("%+v", n)
	}
	if n := r.log.count("refused to join"); n != 1 {
		t.Fatalf("%d lines for one peer in a minute", n)
	}
}

// TestForeignCluster: a token of one cluster sends nothing to another one, whoever that is.
func TestForeignCluster(t *testing.T) {
	r, other := newRig(t, nil), newRig(t, nil)
	tok := r.token(identity.Client, "ann", nil)
	_, err := Join(t.Context(), other.addr, tok, "", "", identity.NewKey())
	want(t, err, errs.Perm, "does not show the authority")
	if n := other.server.Counts(); n.Joined != 0 || other.log.count("not known") != 0 {
		t.Fatalf("the token was sent to a stranger: %+v", n)
	}
	// One that copies the authority's certificate still has not its key.
	forged, err := identity.CreateAuthority(filepath.Join(t.TempDir(), "f"), r.authority.Cluster(),
		time.Now())
	fatal(t, err)
	cert, err := forged.Serve("h1", identity.Plan(time.Now()), time.Now())
	fatal(t, err)
	cert.Certificate = append(cert.Certificate[:1], r.authority.Roots()[0].Raw)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*cert}})
	fatal(t, err)
	defer ln.Close()
	heard := make(chan int, 1)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			heard <- 0
			return
		}
		defer c.Close()
		n, _ := c.Read(make([]byte, 1000))
		heard <- n
	}()
	_, err = Join(t.Context(), ln.Addr().String(), tok, "", "", identity.NewKey())
	want(t, err, errs.Perm, "not by the authority")
	if n := <-heard; n != 0 {
		t.Fatalf("%d bytes were sent to a forger", n)
	}
	// A token that says another kind than the cluster knows is not taken at its word.
	lie := tok
	lie.Kind = identity.Host
	_, err = r.join(lie, "", identity.NewKey())
	want(t, err, errs.Protocol, "has made")
}

// TestLastUse: of those who race for the last use one wins.
func TestLastUse(t *testing.T) {
	r := newRig(t, nil)
	tok := r.token(identity.Client, "", nil)
	var all sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 6 {
		all.Go(func() {
			_, err := r.join(tok, string(rune('a'+i)), identity.NewKey())
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if errs.KindOf(err) != errs.Quota {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if won != 1 {
		t.Fatalf("%d have won", won)
	}
}

// TestMembersAreRenewed by their certificate, and those that are denied, foreign or none are not.
func TestMembersAreRenewed(t *testing.T) {
	r, other := newRig(t, nil), newRig(t, nil)
	c, stranger := r.member("ann"), other.member("ann")
	ctx := t.Context()
	request, err := identity.NewRequest(identity.NewKey())
	fatal(t, err)
	g, err := Remote{}.Renew(ctx, c, request)
	fatal(t, err)
	if g.Name != "ann" || g.Rights.Path != "/proj" {
		t.Fatalf("%+v", g)
	}
	// One of another cluster that believes the first all the same.
	lie := *stranger
	lie.Join = c.Join
	_, err = Remote{}.Renew(ctx, &lie, request)
	want(t, err, errs.Perm, "") // it does not even trust the server
	err = askAs(t, r, stranger.TLS(), renewRequest{request})
	want(t, err, errs.Perm, "belongs to another cluster")
	err = askAs(t, r, nil, renewRequest{request})
	want(t, err, errs.Perm, "show a certificate")
	err = askAs(t, r, c.TLS(), renewRequest{[]byte("none")})
	want(t, err, errs.Invalid, "cannot be read")

	fatal(t, r.registry.RemoveMember(ctx, caller, identity.Client, "ann"))
	_, err = Remote{}.Renew(ctx, c, request)
	if k := errs.KindOf(err); k != errs.Forged && k != errs.Perm {
		t.Fatal(err)
	}
	eventually(t, "the service denies it", func() bool {
		_, err := Remote{}.Notice(ctx, c, 0)
		return errs.KindOf(err) == errs.Perm
	})
	if !r.server.Trust().Denied(c.Peer().Serial) {
		t.Fatal("other servers of the process do not know")
	}
}

// askAs sends a renewal with a certificate, believing whoever listens.
func askAs(t testing.TB, r *rig, cert *tls.Certificate, q any) error {
	conf := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}
	if cert != nil {
		conf.Certificates = []tls.Certificate{*cert}
	}
	return ask(t.Context(), conf, r.addr, pathRenew, q, &identity.Grant{})
}

// TestExpired: a certificate that has run out renews nothing.
func TestExpired(t *testing.T) {
	var ahead time.Duration
	r := newRig(t, func(o *Options) { o.Now = func() time.Time { return time.Now().Add(ahead) } })
	c := r.member("ann")
	ahead = identity.Life + time.Hour
	request, err := identity.NewRequest(identity.NewKey())
	fatal(t, err)
	err = askAs(t, r, c.TLS(), renewRequest{request})
	want(t, err, errs.Perm, "has ended")
}

// TestClocks: a joiner whose clock is wrong by a day joins, and is told.
func TestClocks(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Now = func() time.Time { return time.Now().Add(24 * time.Hour) }
	})
	j, err := Join(t.Context(), r.addr, r.token(identity.Client, "ann", nil), "", "",
		identity.NewKey())
	fatal(t, err)
	if j.Ahead < 23*time.Hour || j.Ahead > 25*time.Hour {
		t.Fatalf("ahead by %v", j.Ahead)
	}
}

// TestRotation: members hear of it and are renewed, tokens from before go on, and in the end only
// the new authority is left. The registry follows, whoever changed the file.
func TestRotation(t *testing.T) {
	r := newRig(t, nil)
	ctx := t.Context()
	early := r.token(identity.Client, "late", nil)
	file := filepath.Join(t.TempDir(), "client.json")
	fatal(t, r.member("ann").Write(file))
	k, err := identity.NewKeeper(file, identity.KeeperOptions{Source: Remote{},
		Log: slog.New(slog.DiscardHandler)})
	fatal(t, err)
	other, err := identity.OpenAuthority(r.dir) // `sluice key rotate` is another process
	fatal(t, err)
	fatal(t, other.Rotate(identity.SigningKey, time.Now()))
	fatal(t, other.Rotate(identity.SecretKey, time.Now()))
	eventually(t, "the registry follows", func() bool {
		reg, err := r.registry.Registry(ctx, caller)
		fatal(t, err)
		return reg.Authority.Number == 2 && reg.Secret.Number == 2 && !reg.Authority.Retired
	})
	late, err := r.join(early, "", identity.NewKey())
	fatal(t, err)
	if !late.Current() || len(late.Authorities) != 2 {
		t.Fatal("joined by an old authority")
	}
	k.Refresh(ctx)
	fatal(t, k.Renew(ctx))
	if !k.Credential().Current() {
		t.Fatal("not renewed")
	}
	fatal(t, other.Retire(identity.SigningKey))
	fatal(t, other.Retire(identity.SecretKey))
	eventually(t, "the old authority is gone", func() bool {
		k.Refresh(ctx)
		reg, err := r.registry.Registry(ctx, caller)
		fatal(t, err)
		return reg.Authority.Retired && reg.Secret.Retired && len(k.Trust().Roots()) == 1
	})
}

// TestAuthorityOfAnother is refused.
func TestAuthorityOfAnother(t *testing.T) {
	r := newRig(t, nil)
	a, err := identity.CreateAuthority(filepath.Join(t.TempDir(), "k"), identity.NewClusterID(),
		time.Now())
	fatal(t, err)
	_, err = NewServer(t.Context(), Options{Authority: a, Registry: r.registry, Name: "h1"})
	want(t, err, errs.Conflict, "generation 1")
}

// TestLocalSource: the process that has the authority renews by itself.
func TestLocalSource(t *testing.T) {
	r := newRig(t, nil)
	c := r.member("ann")
	request, err := identity.NewRequest(identity.NewKey())
	fatal(t, err)
	if _, err := r.server.Renew(t.Context(), c, request); err != nil {
		t.Fatal(err)
	}
	n, err := r.server.Notice(t.Context(), c, 0)
	if err != nil || n.Denials == 0 || n.Same {
		t.Fatalf("%+v, %v", n, err)
	}
	again, err := r.server.Notice(t.Context(), c, n.Denials)
	if err != nil || !again.Same {
		t.Fatalf("%+v, %v", again, err)
	}
	_, err = r.server.Notice(t.Context(), newRig(t, nil).member("x"), 0)
	want(t, err, errs.Perm, "")
}
