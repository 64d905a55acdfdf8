package metatest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
)

// registryCases are the tests of meta.Tokens, meta.Members and meta.Denials.
var registryCases = []testCase{
	{"Tokens", testTokens},
	{"TokenRefusals", testTokenRefusals},
	{"TokenUses", testTokenUses},
	{"TokenRepeated", testTokenRepeated},
	{"TokenExpires", testTokenExpires},
	{"TokenClock", testTokenClock},
	{"EndedMembersJoinAgain", testEndedMembersJoinAgain},
	{"RaceLastUse", testRaceLastUse},
	{"Members", testMembers},
	{"MemberPages", testMemberPages},
	{"Denials", testDenials},
	{"Generations", testGenerations},
	{"RegistryRights", testRegistryRights},
}

// clientToken is a token for clients that lasts an hour.
func (e *env) clientToken(id uint64, name string, uses uint32) meta.Token {
	return meta.Token{ID: id, Hash: identity.HashSecret(id, [16]byte{byte(id)}),
		Kind: identity.Client, Name: name, Uses: uses, Note: "of the suite",
		Rights:  identity.Rights{Path: "/proj", ReadOnly: true, Volumes: []string{"v1"}},
		Expires: e.clock.read().Add(time.Hour).UnixNano()}
}

func (e *env) hostToken(id uint64, name string) meta.Token {
	t := e.clientToken(id, name, 1)
	t.Kind, t.Rights, t.Roles = identity.Host, identity.Rights{}, identity.RoleIod
	return t
}

func (e *env) mustToken(t meta.Token) meta.Token {
	e.Helper()
	got, err := e.Service.CreateToken(e.ctx, e.root(), t)
	e.must(err)
	return got
}

// cert is a certificate that lasts 90 days.
func (e *env) cert(n byte) meta.Certificate {
	return meta.Certificate{Serial: identity.Serial{0x40, 15: n},
		NotAfter: e.clock.read().Add(identity.Life).UnixNano()}
}

// use tries a token with a key.
func (e *env) use(t meta.Token, name string, key byte) (meta.Member, error) {
	return e.Service.UseToken(e.ctx, e.root(), meta.TokenUse{ID: t.ID, Hash: t.Hash, Name: name,
		Key: identity.Hash{key}, Certificate: e.cert(key)})
}

func (e *env) tokens() (all []meta.Token) {
	e.Helper()
	for after := uint64(0); ; {
		page, err := e.Service.ListTokens(e.ctx, e.root(), after, 2)
		e.must(err)
		if len(page) == 0 {
			return all
		}
		all, after = append(all, page...), page[len(page)-1].ID
	}
}

func testTokens(e *env) {
	a, b := e.mustToken(e.clientToken(7, "ann", 3)), e.mustToken(e.hostToken(9, ""))
	c := e.mustToken(e.clientToken(8, "", 1))
	if a.Created == 0 || a.Used != 0 || a.Rights.Path != "/proj" || a.Note != "of the suite" {
		e.Fatalf("%+v", a)
	}
	e.Restart(e)
	all := e.tokens()
	if len(all) != 3 || all[0].ID != 7 || all[1].ID != 8 || all[2].ID != 9 ||
		!slices.Equal(all[0].Rights.Volumes, a.Rights.Volumes) || all[2].Roles != b.Roles {
		e.Fatalf("%+v", all)
	}
	_, err := e.Service.CreateToken(e.ctx, e.root(), e.clientToken(7, "bob", 1))
	e.want(errs.Exists, err, "a second token of one id")
	e.must(e.Service.RemoveToken(e.ctx, e.root(), c.ID))
	e.want(errs.NotFound, e.Service.RemoveToken(e.ctx, e.root(), c.ID), "a token that is gone")
	_, err = e.use(c, "x", 1)
	e.want(errs.NotFound, err, "the use of a token that is gone")
	if all := e.tokens(); len(all) != 2 {
		e.Fatalf("%+v", all)
	}
	_, err = e.Service.ListTokens(e.ctx, e.root(), 0, 0)
	e.want(errs.Invalid, err, "a page of nothing")
}

func testTokenRefusals(e *env) {
	good := e.clientToken(1, "ann", 1)
	for what, change := range map[string]func(t *meta.Token){
		"no id":          func(t *meta.Token) { t.ID = 0 },
		"no hash":        func(t *meta.Token) { t.Hash = identity.Hash{} },
		"no kind":        func(t *meta.Token) { t.Kind = 0 },
		"no uses":        func(t *meta.Token) { t.Uses = 0 },
		"many uses":      func(t *meta.Token) { t.Uses = meta.TokenUsesMax + 1 },
		"a bad name":     func(t *meta.Token) { t.Name = "An/n" },
		"run out":        func(t *meta.Token) { t.Expires = e.clock.read().UnixNano() - 1 },
		"no path":        func(t *meta.Token) { t.Rights.Path = "" },
		"a foul path":    func(t *meta.Token) { t.Rights.Path = "/a/../b" },
		"a client role":  func(t *meta.Token) { t.Roles = identity.RoleMeta },
		"no role":        func(t *meta.Token) { t.Kind, t.Roles = identity.Host, 0 },
		"unknown role":   func(t *meta.Token) { t.Kind, t.Roles = identity.Host, 0x80 },
		"a shared host":  func(t *meta.Token) { t.Kind, t.Roles, t.Uses = identity.Host, 1, 2 },
		"volume twice":   func(t *meta.Token) { t.Rights.Volumes = []string{"v", "v"} },
		"unknown squash": func(t *meta.Token) { t.Rights.Squash = 9 },
	} {
		t := good
		change(&t)
		_, err := e.Service.CreateToken(e.ctx, e.root(), t)
		e.want(errs.Invalid, err, what)
	}
	t := e.mustToken(good)
	wrong := t
	wrong.Hash[0]++
	_, err := e.use(wrong, "", 1)
	e.want(errs.Forged, err, "a wrong secret")
	_, err = e.use(t, "bob", 1)
	e.want(errs.Invalid, err, "another name than the token's")
	unnamed := e.mustToken(e.clientToken(2, "", 1))
	_, err = e.use(unnamed, "", 1)
	e.want(errs.Invalid, err, "no name at all")
	_, err = e.Service.UseToken(e.ctx, e.root(), meta.TokenUse{ID: t.ID, Hash: t.Hash})
	e.want(errs.Invalid, err, "no key")
	if all := e.tokens(); all[0].Used != 0 || all[1].Used != 0 {
		e.Fatalf("a refusal has used a token: %+v", all)
	}
}

// testTokenUses: a client's name may be shared by those who came by one token, a host's is not.
func testTokenUses(e *env) {
	t := e.mustToken(e.clientToken(1, "lab", 2))
	m, err := e.use(t, "", 1)
	e.must(err)
	if m.Kind != identity.Client || m.Name != "lab" || m.Rights.Path != "/proj" ||
		!m.Rights.ReadOnly || m.Token != 1 || m.Joined == 0 || len(m.Certificates) != 1 {
		e.Fatalf("%+v", m)
	}
	m, err = e.use(t, "lab", 2)
	e.must(err)
	if len(m.Certificates) != 2 || m.Certificates[1].Serial != e.cert(2).Serial {
		e.Fatalf("%+v", m)
	}
	_, err = e.use(t, "", 3)
	e.want(errs.Quota, err, "a third use of two")
	other := e.mustToken(e.clientToken(2, "lab", 1))
	_, err = e.use(other, "", 4)
	e.want(errs.Exists, err, "a name that another token gave")

	h := e.mustToken(e.hostToken(3, ""))
	_, err = e.use(h, "h1", 5)
	e.must(err)
	h2 := e.mustToken(e.hostToken(4, ""))
	_, err = e.use(h2, "h1", 6)
	e.want(errs.Exists, err, "a host's name")
	_, err = e.use(h2, "lab", 6) // a client's name is no host's
	e.must(err)
}

// testTokenRepeated: who repeats a join with its key gets the same again, also after a restart.
func testTokenRepeated(e *env) {
	t := e.mustToken(e.hostToken(1, ""))
	first, err := e.use(t, "h1", 1)
	e.must(err)
	e.Restart(e)
	again, err := e.use(t, "h1", 1)
	e.must(err)
	if again.Name != first.Name || again.Joined != first.Joined {
		e.Fatalf("%+v, and then %+v", first, again)
	}
	again, err = e.use(t, "", 1)
	e.must(err)
	if again.Name != "h1" {
		e.Fatalf("%+v", again)
	}
	_, err = e.use(t, "h2", 1)
	e.want(errs.Invalid, err, "the same key under another name")
	_, err = e.use(t, "h1", 2)
	e.want(errs.Quota, err, "another key")
	if all := e.tokens(); all[0].Used != 1 {
		e.Fatalf("%+v", all)
	}

	// The same request again is answered as it was, and does nothing.
	t2 := e.mustToken(e.hostToken(2, ""))
	c := e.root()
	c.ReqID = [16]byte{1, 2, 3}
	u := meta.TokenUse{ID: t2.ID, Hash: t2.Hash, Name: "h9", Key: identity.Hash{9},
		Certificate: e.cert(9)}
	for range 2 {
		m, err := e.Service.UseToken(e.ctx, c, u)
		e.must(err)
		if m.Name != "h9" || len(m.Certificates) != 1 {
			e.Fatalf("%+v", m)
		}
	}
	// One that was removed does not come back by repeating.
	e.must(e.Service.RemoveMember(e.ctx, e.root(), identity.Host, "h1"))
	_, err = e.use(t, "h1", 1)
	e.want(errs.Forged, err, "a member that was removed")
}

func testTokenExpires(e *env) {
	t := e.mustToken(e.clientToken(1, "ann", 2))
	_, err := e.use(t, "", 1)
	e.must(err)
	e.clock.advance(time.Hour)
	_, err = e.use(t, "", 2)
	e.want(errs.Expired, err, "a token that has run out")
	_, err = e.use(t, "", 1)
	e.want(errs.Expired, err, "a repetition after the token has run out")
	if len(e.tokens()) != 1 {
		e.Fatal("nobody sees any more why it was refused")
	}
	e.clock.advance(48 * time.Hour)
	e.eventually("the token is forgotten", func() bool { return len(e.tokens()) == 0 })
	_, err = e.use(t, "", 2)
	if k := errs.KindOf(err); k != errs.NotFound && k != errs.Expired {
		e.Fatal(err)
	}
}

// testTokenClock: how long a token lasts does not depend on the clock of who makes it.
func testTokenClock(e *env) {
	for i, off := range []time.Duration{-25 * time.Hour, 25 * time.Hour} {
		t := e.clientToken(uint64(i+1), "ann", 1)
		t.Created = e.clock.read().Add(off).UnixNano()
		t.Expires = t.Created + int64(time.Hour)
		before := e.clock.read()
		got := e.mustToken(t)
		end := time.Unix(0, got.Expires)
		if end.Before(before.Add(time.Hour)) || end.After(e.clock.read().Add(time.Hour)) {
			e.Fatalf("it ends at %v, made at %v", end, before)
		}
	}
	late := e.clientToken(9, "bob", 1)
	late.Created = late.Expires + 1
	_, err := e.Service.CreateToken(e.ctx, e.root(), late)
	e.want(errs.Invalid, err, "a token that ends before it begins")
}

// testEndedMembersJoinAgain: a member whose certificates have all ended joins again under its name,
// and is what the new token says. Its old certificates are denied with it all the same.
func testEndedMembersJoinAgain(e *env) {
	_, err := e.use(e.mustToken(e.hostToken(1, "")), "h1", 1)
	e.must(err)
	_, err = e.use(e.mustToken(e.clientToken(2, "ann", 1)), "", 2)
	e.must(err)
	e.clock.advance(identity.Life + identity.Skew - time.Second)
	host, ann := e.hostToken(3, "h1"), e.clientToken(4, "ann", 1)
	host.Roles, ann.Rights.Path = identity.RoleGateway, "/other"
	e.mustToken(host)
	e.mustToken(ann)
	_, err = e.use(host, "", 3)
	e.want(errs.Exists, err, "a host whose certificate somebody may believe")
	_, err = e.use(ann, "", 4)
	e.want(errs.Exists, err, "a client whose certificate somebody may believe")
	e.clock.advance(2 * time.Second)
	m, err := e.use(host, "", 3)
	e.must(err)
	if m.Roles != identity.RoleGateway || m.Token != 3 || len(m.Certificates) != 2 {
		e.Fatalf("%+v", m)
	}
	m, err = e.use(ann, "", 4)
	e.must(err)
	if m.Rights.Path != "/other" || m.Token != 4 || len(m.Certificates) != 2 {
		e.Fatalf("%+v", m)
	}
	e.must(e.Service.RemoveMember(e.ctx, e.root(), identity.Client, "ann"))
	denied, err := e.Service.ListDenied(e.ctx, e.root(), identity.Serial{}, 9)
	e.must(err)
	if len(denied) != 2 {
		e.Fatalf("%+v", denied)
	}
}

// testRaceLastUse: of many who try for the last use at once one gets it.
func testRaceLastUse(e *env) {
	for round := range 10 {
		t := e.mustToken(e.clientToken(uint64(1+round), "", 3))
		var got atomic.Int32
		var all sync.WaitGroup
		for key := range 8 {
			all.Go(func() {
				_, err := e.use(t, fmt.Sprint("c", round, "-", key), byte(1+key))
				switch errs.KindOf(err) {
				case errs.OK:
					got.Add(1)
				case errs.Quota:
				default:
					e.Error(err)
				}
			})
		}
		all.Wait()
		if got.Load() != 3 {
			e.Fatalf("%d have joined by a token of 3 uses", got.Load())
		}
		members := 0
		for _, m := range e.members(identity.Client) {
			if m.Token == t.ID {
				members++
			}
		}
		if members != 3 {
			e.Fatalf("%d members of 3 uses", members)
		}
	}
}

func (e *env) members(kind identity.Kind) (all []meta.Member) {
	e.Helper()
	for after := ""; ; {
		page, err := e.Service.ListMembers(e.ctx, e.root(), kind, after, 3)
		e.must(err)
		if len(page) == 0 {
			return all
		}
		all, after = append(all, page...), page[len(page)-1].Name
	}
}

func testMembers(e *env) {
	m := meta.Member{Kind: identity.Host, Name: "first", Roles: identity.RolesAll,
		Certificates: []meta.Certificate{e.cert(1)}}
	got, err := e.Service.EnlistMember(e.ctx, e.root(), m)
	e.must(err)
	if got.Roles != identity.RolesAll || got.Joined == 0 || len(got.Certificates) != 1 {
		e.Fatalf("%+v", got)
	}
	m.Certificates = []meta.Certificate{e.cert(2)}
	got, err = e.Service.EnlistMember(e.ctx, e.root(), m) // an init that was repeated
	e.must(err)
	if len(got.Certificates) != 2 {
		e.Fatalf("%+v", got)
	}
	renew := func(name string, by, next byte) (meta.Member, error) {
		return e.Service.RenewMember(e.ctx, e.root(), identity.Host, name, e.cert(by).Serial,
			e.cert(next))
	}
	got, err = renew("first", 1, 3)
	e.must(err)
	if len(got.Certificates) != 3 || got.Renewed <= got.Joined {
		e.Fatalf("%+v", got)
	}
	_, err = renew("first", 9, 4)
	e.want(errs.Forged, err, "a renewal by another certificate")
	_, err = renew("nobody", 1, 4)
	e.want(errs.Forged, err, "a renewal of who is not there")
	for n := byte(10); err == nil || errs.KindOf(err) == errs.Forged; n++ {
		if _, err = renew("first", 1, n); n > 100 {
			e.Fatal("certificates without an end")
		}
	}
	e.want(errs.Quota, err, "too many certificates")
	e.clock.advance(identity.Life + 48*time.Hour) // those have run out
	got, err = renew("first", 1, 200)
	e.must(err)
	if len(got.Certificates) != 1 {
		e.Fatalf("%d certificates, all but one of which have run out", len(got.Certificates))
	}
	_, err = e.Service.GetMember(e.ctx, e.root(), identity.Client, "first")
	e.want(errs.NotFound, err, "a client of a host's name")
	_, err = e.Service.GetMember(e.ctx, e.root(), 0, "first")
	e.want(errs.Invalid, err, "of no kind")
	for what, bad := range map[string]meta.Member{
		"no name":        {Kind: identity.Host, Roles: 1, Certificates: m.Certificates},
		"no certificate": {Kind: identity.Host, Name: "x", Roles: 1},
		"no rights":      {Kind: identity.Client, Name: "x", Certificates: m.Certificates},
	} {
		_, err := e.Service.EnlistMember(e.ctx, e.root(), bad)
		e.want(errs.Invalid, err, what)
	}
}

func testMemberPages(e *env) {
	t := e.mustToken(e.clientToken(1, "", 100))
	for i := range 70 {
		_, err := e.use(t, fmt.Sprintf("c%02d", i), byte(1+i))
		e.must(err)
	}
	all := e.members(identity.Client)
	for i, m := range all {
		if m.Name != fmt.Sprintf("c%02d", i) {
			e.Fatalf("%d is %s", i, m.Name)
		}
	}
	if len(all) != 70 || len(e.members(identity.Host)) != 0 {
		e.Fatalf("%d members", len(all))
	}
	page, err := e.Service.ListMembers(e.ctx, e.root(), identity.Client, "c01", 1000)
	e.must(err)
	if len(page) == 0 || len(page) > meta.MemberPageMax || page[0].Name != "c02" {
		e.Fatalf("a page of %d", len(page))
	}
}

// testDenials: who is removed is denied with all its certificates, until they have run out.
func testDenials(e *env) {
	before, err := e.Service.Registry(e.ctx, e.root())
	e.must(err)
	if before.Denials == 0 {
		e.Fatal("0 is for who knows nothing")
	}
	t := e.mustToken(e.clientToken(1, "lab", 3))
	for key := byte(1); key <= 3; key++ {
		_, err := e.use(t, "", key)
		e.must(err)
	}
	e.must(e.Service.RemoveMember(e.ctx, e.root(), identity.Client, "lab"))
	e.want(errs.NotFound, e.Service.RemoveMember(e.ctx, e.root(), identity.Client, "lab"),
		"a second removal")
	e.Restart(e)
	after, err := e.Service.Registry(e.ctx, e.root())
	e.must(err)
	if after.Denials == before.Denials {
		e.Fatal("nobody would notice that the deny list has changed")
	}
	denied := func() (all []meta.Denied) {
		for from := (identity.Serial{}); ; {
			page, err := e.Service.ListDenied(e.ctx, e.root(), from, 2)
			e.must(err)
			if len(page) == 0 {
				return all
			}
			all, from = append(all, page...), page[len(page)-1].Serial
		}
	}
	all := denied()
	if len(all) != 3 || all[0].Serial != e.cert(1).Serial || all[2].Name != "lab" ||
		all[0].Kind != identity.Client || all[0].At == 0 {
		e.Fatalf("%+v", all)
	}
	_, err = e.Service.RenewMember(e.ctx, e.root(), identity.Client, "lab", all[0].Serial, e.cert(9))
	e.want(errs.Forged, err, "a renewal of who was removed")
	e.clock.advance(identity.Life + 48*time.Hour)
	if all := denied(); len(all) != 0 {
		e.Fatalf("certificates that have run out are denied: %+v", all)
	}
}

func testGenerations(e *env) {
	set := func(what identity.KeyKind, number uint64, sum byte, retired bool) (meta.Registry, error) {
		return e.Service.SetGeneration(e.ctx, e.root(), what, meta.Generation{Number: number,
			Fingerprint: identity.Hash{sum}, Retired: retired})
	}
	r, err := set(identity.SigningKey, 1, 1, true)
	e.must(err)
	since := r.Authority.Since
	if r.Authority.Number != 1 || since == 0 || r.Secret.Number != 0 {
		e.Fatalf("%+v", r)
	}
	r, err = set(identity.SigningKey, 1, 1, true)
	e.must(err)
	if r.Authority.Since != since {
		e.Fatal("a repetition has made it younger")
	}
	_, err = set(identity.SigningKey, 1, 2, true)
	e.want(errs.Conflict, err, "another key of the same number")
	r, err = set(identity.SigningKey, 2, 2, false)
	e.must(err)
	if r.Authority.Retired || r.Authority.Since == since {
		e.Fatalf("%+v", r)
	}
	_, err = set(identity.SigningKey, 1, 1, false)
	e.want(errs.Conflict, err, "an earlier one")
	r, err = set(identity.SigningKey, 2, 2, true)
	e.must(err)
	if !r.Authority.Retired {
		e.Fatalf("%+v", r)
	}
	r, err = set(identity.SecretKey, 5, 7, false)
	e.must(err)
	e.Restart(e)
	again, err := e.Service.Registry(e.ctx, e.root())
	e.must(err)
	if again != r {
		e.Fatalf("%+v after a restart, %+v before", again, r)
	}
	_, err = set(0, 1, 1, false)
	e.want(errs.Invalid, err, "no key")
	_, err = set(identity.SecretKey, 0, 1, false)
	e.want(errs.Invalid, err, "no number")
}

// testRegistryRights: it is for administrators.
func testRegistryRights(e *env) {
	t := e.mustToken(e.clientToken(1, "ann", 1))
	c, s := e.user(alice), e.Service
	_, create := s.CreateToken(e.ctx, c, e.clientToken(2, "bob", 1))
	_, list := s.ListTokens(e.ctx, c, 0, 9)
	_, use := s.UseToken(e.ctx, c, meta.TokenUse{ID: t.ID, Hash: t.Hash, Key: identity.Hash{1},
		Certificate: e.cert(1)})
	_, members := s.ListMembers(e.ctx, c, identity.Host, "", 9)
	_, member := s.GetMember(e.ctx, c, identity.Host, "x")
	_, enlist := s.EnlistMember(e.ctx, c, meta.Member{Kind: identity.Host, Name: "x", Roles: 1,
		Certificates: []meta.Certificate{e.cert(1)}})
	_, renew := s.RenewMember(e.ctx, c, identity.Host, "x", e.cert(1).Serial, e.cert(2))
	_, denied := s.ListDenied(e.ctx, c, identity.Serial{}, 9)
	_, registry := s.Registry(e.ctx, c)
	_, set := s.SetGeneration(e.ctx, c, identity.SecretKey, meta.Generation{Number: 1})
	for i, err := range []error{create, list, use, members, member, enlist, renew, denied, registry,
		set, s.RemoveToken(e.ctx, c, 1), s.RemoveMember(e.ctx, c, identity.Host, "x")} {
		e.want(errs.Perm, err, fmt.Sprint("operation ", i, " of somebody"))
	}
}
