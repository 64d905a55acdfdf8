package store

import (
	"context"
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
)

// checkToken refuses tokens that make no sense.
func checkToken(x *meta.Token) error {
	bad := func(format string, args ...any) error {
		return errs.Newf(errs.Invalid, "meta.token", "", format, args...)
	}
	switch {
	case x.ID == 0 || x.Hash == identity.Hash{}:
		return bad("it has no id or no hash")
	case x.Uses == 0 || x.Uses > meta.TokenUsesMax:
		return bad("%d uses: choose from 1 to %d", x.Uses, meta.TokenUsesMax)
	case len(x.Note) > meta.NoteMax:
		return bad("a note of %d bytes, at most %d", len(x.Note), meta.NoteMax)
	case x.Kind == identity.Host && x.Name != "" && x.Uses != 1:
		return bad("one host has the name %q: one use", x.Name)
	}
	if x.Name != "" {
		if err := identity.CheckName(x.Name); err != nil {
			return err
		}
	}
	return checkStanding(x.Kind, x.Roles, &x.Rights)
}

// checkStanding refuses what no host or client may be.
func checkStanding(kind identity.Kind, roles identity.Roles, rights *identity.Rights) error {
	switch kind {
	case identity.Host:
		if roles == 0 || roles&^identity.RolesAll != 0 {
			return errs.Newf(errs.Invalid, "meta.member", "", "a host without a role that is known")
		}
		return nil
	case identity.Client:
		if roles != 0 {
			return errs.Newf(errs.Invalid, "meta.member", "", "a client has no roles")
		}
		return rights.Check()
	}
	return errs.Newf(errs.Invalid, "meta.member", "", "neither host nor client")
}

// CreateToken implements meta.Tokens.
func (s *Store) CreateToken(ctx context.Context, c meta.Caller, x meta.Token) (meta.Token, error) {
	const op = "meta.CreateToken"
	if err := checkToken(&x); err != nil {
		return meta.Token{}, errs.Wrap(op, "", err)
	}
	asked := x
	err := s.registryUpdate(ctx, op, &c, func(t *txn) error {
		var old meta.Token
		x = asked // a transaction that conflicts runs again, and must not build on what it made of x
		found, err := t.readStored(tokenKey(x.ID), &old)
		if x.Created != 0 {
			x.Expires = t.now.UnixNano() + asked.Expires - asked.Created
		}
		switch {
		case err != nil:
			return err
		case found:
			return errs.Exists
		case x.Expires <= t.now.UnixNano():
			return errs.Newf(errs.Invalid, "", "", "it would have run out")
		}
		n := 0
		err = t.scan(registryPrefix(registryToken), func(_, _ []byte) bool {
			n++
			return n < meta.TokensMax
		})
		if err == nil && n >= meta.TokensMax {
			err = errs.Newf(errs.Quota, "", "", "there are %d tokens: remove some", n)
		}
		x.Used, x.Created = 0, t.now.UnixNano()
		t.putStored(tokenKey(x.ID), &x)
		return err
	})
	if err != nil {
		return meta.Token{}, err
	}
	err = s.look(func(t *txn) error { // a repetition is told what was made the first time
		_, err := t.readStored(tokenKey(x.ID), &x)
		return err
	})
	return x, errs.Wrap(op, "", err)
}

// ListTokens implements meta.Tokens.
func (s *Store) ListTokens(_ context.Context, c meta.Caller, after uint64, max int) (
	page []meta.Token, err error) {

	err = s.registryLook("meta.ListTokens", &c, func(t *txn) error {
		return t.registryPage(registryPrefix(registryToken), tokenKey(after), max, meta.MemberPageMax,
			func(key, value []byte) (bool, error) {
				var x meta.Token
				err := parse(key, value, registryRecord{&x})
				if err != nil || t.over(x.Expires) {
					return false, err
				}
				page = append(page, x)
				return true, nil
			})
	})
	return page, err
}

// RemoveToken implements meta.Tokens. What is noted of its uses is swept later.
func (s *Store) RemoveToken(ctx context.Context, c meta.Caller, id uint64) error {
	return s.registryUpdate(ctx, "meta.RemoveToken", &c, func(t *txn) error {
		t.kv.MakesRoom = true
		found, err := t.exists(tokenKey(id))
		if err == nil && !found {
			err = errs.Newf(errs.NotFound, "", "", "there is no such token")
		}
		t.remove(tokenKey(id))
		return err
	})
}

// UseToken implements meta.Tokens.
func (s *Store) UseToken(ctx context.Context, c meta.Caller, u meta.TokenUse) (
	m meta.Member, err error) {

	const op = "meta.UseToken"
	if u.Key == (identity.Hash{}) || u.Certificate.Serial == (identity.Serial{}) {
		return m, errs.Newf(errs.Invalid, op, "", "no key or no certificate")
	}
	err = s.registryUpdate(ctx, op, &c, func(t *txn) error {
		m = meta.Member{}
		x, err := t.token(&u)
		if err != nil {
			return err
		}
		made, err := t.admit(x, &u)
		if err == nil {
			m = made
		}
		return err
	})
	if err == nil && m.Name == "" { // it had been done
		m, err = s.joined(&u)
	}
	if err == nil {
		s.pardon(ctx, meta.Peer{Kind: m.Kind, Name: m.Name})
	}
	return m, errs.Wrap(op, "", err)
}

// token finds the token that is to be used.
func (t *txn) token(u *meta.TokenUse) (*meta.Token, error) {
	x := &meta.Token{}
	found, err := t.readStored(tokenKey(u.ID), x)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, errs.Newf(errs.NotFound, "", "", "there is no such token")
	case !x.Hash.Equal(u.Hash):
		return nil, errs.Newf(errs.Forged, "", "", "the token's secret is wrong")
	case t.now.UnixNano() >= x.Expires:
		return nil, errs.Newf(errs.Expired, "", "", "the token has run out")
	}
	return x, nil
}

// admit makes a member by a token, or finds the one that the same key was made before.
func (t *txn) admit(x *meta.Token, u *meta.TokenUse) (meta.Member, error) {
	var before use
	repeated, err := t.readStored(useKey(u.ID, u.Key), &before)
	if err != nil {
		return meta.Member{}, err
	}
	name := x.Name
	if name == "" {
		name = u.Name
	}
	switch {
	case repeated && u.Name != "" && u.Name != before.Name:
		return meta.Member{}, errs.Newf(errs.Invalid, "", "", "this key has joined as %s", before.Name)
	case repeated:
		name = before.Name
	case x.Used >= x.Uses:
		return meta.Member{}, errs.Newf(errs.Quota, "", "", "the token is used up")
	case u.Name != "" && u.Name != name:
		return meta.Member{}, errs.Newf(errs.Invalid, "", "", "the token is for the name %s", name)
	}
	if err := identity.CheckName(name); err != nil {
		return meta.Member{}, err
	}
	m := meta.Member{}
	found, err := t.readStored(memberKey(x.Kind, name), &m)
	switch {
	case err != nil:
		return m, err
	case repeated && (!found || m.Token != x.ID):
		return m, errs.Newf(errs.Forged, "", "", "%s %s was removed since it joined", x.Kind, name)
	case repeated || found && x.Kind == identity.Client && m.Token == x.ID: // it goes on as what it is
	case found && !t.ended(&m):
		return m, errs.Newf(errs.Exists, "", "", "there is a %s %s", x.Kind, name)
	default: // certificates that have ended are kept, so that they are denied with the member
		m = meta.Member{Kind: x.Kind, Name: name, Roles: x.Roles, Rights: x.Rights, Token: x.ID,
			Joined: t.now.UnixNano(), Certificates: m.Certificates}
	}
	if err := t.certify(&m, u.Certificate); err != nil {
		return m, err
	}
	if !repeated {
		x.Used++
		t.putStored(tokenKey(x.ID), x)
		t.putStored(useKey(u.ID, u.Key), &use{name})
	}
	return m, nil
}

// ended tells whether all certificates of a member have ended, so that nobody believes it.
func (t *txn) ended(m *meta.Member) bool {
	return !slices.ContainsFunc(m.Certificates, func(c meta.Certificate) bool {
		return t.now.UnixNano() <= c.NotAfter+int64(identity.Skew)
	})
}

// certify notes that a member gets a certificate.
func (t *txn) certify(m *meta.Member, c meta.Certificate) error {
	m.Certificates = slices.DeleteFunc(m.Certificates, func(c meta.Certificate) bool {
		return t.over(c.NotAfter)
	})
	m.Renewed = t.now.UnixNano()
	if !slices.Contains(m.Certificates, c) {
		if len(m.Certificates) >= meta.CertificatesMax {
			return errs.Newf(errs.Quota, "", "", "%s %s has %d certificates that have not run out: "+
				"remove it, and let it join again", m.Kind, m.Name, len(m.Certificates))
		}
		m.Certificates = append(m.Certificates, c)
	}
	t.putStored(memberKey(m.Kind, m.Name), m)
	return nil
}

// joined is who has joined by a use of a token.
func (s *Store) joined(u *meta.TokenUse) (m meta.Member, err error) {
	err = s.look(func(t *txn) error {
		x, err := t.token(u)
		if err != nil {
			return err
		}
		var before use
		found, err := t.readStored(useKey(u.ID, u.Key), &before)
		if err != nil {
			return err
		}
		if found {
			found, err = t.readStored(memberKey(x.Kind, before.Name), &m)
		}
		if err == nil && !found {
			err = errs.NotFound
		}
		return err
	})
	return m, err
}
