package clustertest

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
	"github.com/sluice-storage/sluice/peer"
)

// Members is a cluster whose members prove who they are by certificates.
type Members struct {
	URL   string
	Names *store.Store // of the metadata service: nothing is kept from who has it

	dir       string
	authority *identity.Authority
	stop      func()
}

// StartMembers is Start for a cluster of certificates.
func StartMembers(servers uint32) (*Members, error) {
	m := &Members{}
	var err error
	m.URL, m.Names, m.stop, err = start(servers, func(dir string) (peer.Options, error) {
		m.dir = dir
		var err error
		m.authority, err = identity.CreateAuthority(filepath.Join(dir, "keys"),
			identity.NewClusterID(), time.Now())
		if err != nil {
			return peer.Options{}, err
		}
		own, _, err := m.certify(identity.Host, "h1")
		return peer.Options{Security: own}, err
	})
	return m, err
}

// Stop ends the cluster.
func (m *Members) Stop() { m.stop() }

// Client makes a client with rights, or gives one other rights, and returns what it proves itself
// by.
func (m *Members) Client(name string, rights identity.Rights) (*tcp.Security, error) {
	security, cert, err := m.certify(identity.Client, name)
	if err == nil {
		_, err = m.Names.EnlistMember(context.Background(), meta.Caller{}, meta.Member{
			Kind: identity.Client, Name: name, Rights: rights, Certificates: []meta.Certificate{cert}})
	}
	return security, err
}

// certify makes a member.
func (m *Members) certify(kind identity.Kind, name string) (*tcp.Security, meta.Certificate,
	error) {
	var none meta.Certificate
	key, now := identity.NewKey(), time.Now()
	der, err := identity.NewRequest(key)
	if err != nil {
		return nil, none, err
	}
	request, err := identity.ParseRequest(der)
	if err != nil {
		return nil, none, err
	}
	plan := identity.Plan(now)
	chain, err := m.authority.Issue(request, kind, name, plan, now)
	if err != nil {
		return nil, none, err
	}
	c, err := identity.NewCredential(key, &identity.Grant{Cluster: m.authority.Cluster(), Kind: kind,
		Name: name, Rights: &identity.Rights{Path: "/"}, Certificate: chain,
		Authorities: identity.RawChain(m.authority.Roots())})
	if err != nil {
		return nil, none, err
	}
	file := filepath.Join(m.dir, kind.String()+"-"+name+".json")
	if err := c.Write(file); err != nil {
		return nil, none, err
	}
	k, err := identity.NewKeeper(file, identity.KeeperOptions{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, none, err
	}
	return peer.Security(k, false),
		meta.Certificate{Serial: plan.Serial, NotAfter: plan.NotAfter.UnixNano()}, nil
}
