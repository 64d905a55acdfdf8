package store

import (
	"context"
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
)

// ListMembers implements meta.Members.
func (s *Store) ListMembers(_ context.Context, c meta.Caller, kind identity.Kind, after string,
	max int) (page []meta.Member, err error) {

	const op = "meta.ListMembers"
	if !kind.Valid() || len(after) > identity.NameMax {
		return nil, errs.Newf(errs.Invalid, op, "", "neither hosts nor clients, or no name")
	}
	err = s.registryLook(op, &c, func(t *txn) error {
		return t.registryPage(membersOf(kind), memberKey(kind, after), max, meta.MemberPageMax,
			func(key, value []byte) (bool, error) {
				var m meta.Member
				err := parse(key, value, registryRecord{&m})
				page = append(page, m)
				return true, err
			})
	})
	return page, err
}

// GetMember implements meta.Members.
func (s *Store) GetMember(_ context.Context, c meta.Caller, kind identity.Kind, name string) (
	m meta.Member, err error) {

	err = s.registryLook("meta.GetMember", &c, func(t *txn) (err error) {
		m, err = t.member(kind, name)
		return err
	})
	return m, err
}

func (t *txn) member(kind identity.Kind, name string) (m meta.Member, err error) {
	err = identity.CheckName(name)
	if err == nil && !kind.Valid() {
		err = errs.Newf(errs.Invalid, "", "", "neither host nor client")
	}
	if err != nil {
		return m, err
	}
	found, err := t.readStored(memberKey(kind, name), &m)
	if err == nil && !found {
		err = errs.Newf(errs.NotFound, "", "", "there is no %s %s", kind, name)
	}
	return m, err
}

// EnlistMember implements meta.Members.
func (s *Store) EnlistMember(ctx context.Context, c meta.Caller, m meta.Member) (
	meta.Member, error) {

	const op = "meta.EnlistMember"
	err := identity.CheckName(m.Name)
	if err == nil {
		err = checkStanding(m.Kind, m.Roles, &m.Rights)
	}
	if err == nil && len(m.Certificates) != 1 {
		err = errs.Newf(errs.Invalid, "", "", "%d certificates", len(m.Certificates))
	}
	if err != nil {
		return meta.Member{}, errs.Wrap(op, "", err)
	}
	cert := m.Certificates[0]
	err = s.registryUpdate(ctx, op, &c, func(t *txn) error {
		old, err := t.member(m.Kind, m.Name)
		switch errs.KindOf(err) {
		case errs.OK:
			old.Roles, old.Rights = m.Roles, m.Rights
		case errs.NotFound:
			old = meta.Member{Kind: m.Kind, Name: m.Name, Roles: m.Roles, Rights: m.Rights,
				Joined: t.now.UnixNano()}
		default:
			return err
		}
		return t.certify(&old, cert)
	})
	if err != nil {
		return meta.Member{}, err
	}
	s.pardon(ctx, meta.Peer{Kind: m.Kind, Name: m.Name})
	return s.GetMember(ctx, c, m.Kind, m.Name)
}

// RenewMember implements meta.Members.
func (s *Store) RenewMember(ctx context.Context, c meta.Caller, kind identity.Kind, name string,
	by identity.Serial, cert meta.Certificate) (meta.Member, error) {

	err := s.registryUpdate(ctx, "meta.RenewMember", &c, func(t *txn) error {
		if cert.Serial == (identity.Serial{}) {
			return errs.Newf(errs.Invalid, "", "", "no certificate")
		}
		m, err := t.member(kind, name)
		known := slices.ContainsFunc(m.Certificates, func(c meta.Certificate) bool {
			return c.Serial == by
		})
		switch {
		case errs.KindOf(err) == errs.NotFound || err == nil && !known:
			return errs.Newf(errs.Forged, "", "", "%s %s was removed, or has another certificate", kind,
				name)
		case err != nil:
			return err
		}
		return t.certify(&m, cert)
	})
	if err != nil {
		return meta.Member{}, err
	}
	return s.GetMember(ctx, c, kind, name)
}

// RemoveMember implements meta.Members.
func (s *Store) RemoveMember(ctx context.Context, c meta.Caller, kind identity.Kind,
	name string) error {

	err := s.registryUpdate(ctx, "meta.RemoveMember", &c, func(t *txn) error {
		t.kv.MakesRoom = true
		m, err := t.member(kind, name)
		if err != nil {
			return err
		}
		for _, cert := range m.Certificates {
			if !t.over(cert.NotAfter) {
				t.putStored(deniedKey(cert.Serial), &meta.Denied{Certificate: cert, Kind: kind, Name: name,
					At: t.now.UnixNano()})
			}
		}
		t.add([]byte(keyDenials), 1)
		t.remove(memberKey(kind, name))
		if kind == identity.Host {
			return t.demandSecret()
		}
		return nil
	})
	if err == nil {
		s.banish(ctx, meta.Peer{Kind: kind, Name: name})
	}
	if err == nil && kind == identity.Host {
		// It cannot come back: that it is not marked as gone, but is found to be down, does no harm.
		if err := s.removeHost(ctx, name); err != nil {
			s.opt.Log.Warn("a host that was removed is not marked as gone", "host", name, "err", err)
		}
	}
	return err
}
