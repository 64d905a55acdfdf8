package main

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/sluice-storage/sluice/config"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/join"
	"github.com/sluice-storage/sluice/peer"
)

// What the processes of a host prove themselves by. A cluster that nobody beyond its host reaches
// has a secret (secret.go) and the key that capabilities are signed with. One that others reach has
// an authority besides, on its first host, and each host a credential of its own: the first one's
// is made by the metadata service, the others' by sluice join.

// makeHostKeys makes what the first host of a cluster needs, or finishes what was begun. It can be
// repeated.
func (c *cluster) makeHostKeys(s config.Security) error {
	if err := c.makeSecret(); err != nil || !s.Keyed() {
		return err
	}
	_, err := c.makeKeys()
	return err
}

// checkHostKeys tells why the folder has no keys for a kind of security; nil: it has.
func (c *cluster) checkHostKeys(s config.Security) error {
	if s.Keyed() {
		if identity.HasAuthority(c.keysDir()) || isFile(c.hostCredentialFile()) {
			return nil
		}
		return errs.Newf(errs.NotFound, "keys", c.dir, "no certificates for %s", s)
	}
	for _, name := range []string{c.keyFile(), c.secretFile()} {
		if _, err := os.Stat(name); errors.Is(err, os.ErrNotExist) {
			return errs.Newf(errs.NotFound, "keys", name, "it is not there")
		}
	}
	return nil
}

// makeKeys makes the cluster's authority, if there is none. The cluster's id is the beginning of
// its own: that is what stores are marked with.
func (c *cluster) makeKeys() (*identity.Authority, error) {
	if err := c.checkPrivate(); err != nil {
		return nil, err
	}
	id := identity.NewClusterID()
	copy(id[:], c.idBytes())
	a, err := identity.CreateAuthority(c.keysDir(), id, time.Now())
	if errors.Is(err, errs.Exists) {
		a, err = identity.OpenAuthority(c.keysDir())
	}
	return a, err
}

// hostIdentity is what a server of this host proves itself by, kept while ctx lasts; nil where
// nobody is known by certificates.
func (c *cluster) hostIdentity(ctx context.Context, f *secretFlag, log *slog.Logger) (peer.Identity,
	error) {
	if !f.keyed() {
		return nil, nil
	}
	k, err := join.Keep(ctx, c.hostCredentialFile(), log)
	if errors.Is(err, errs.NotFound) {
		err = hint(err, "The metadata service makes it on its host; on another one: sluice join")
	}
	return k, err
}

// lateIdentity is that of the metadata service: it makes its host's credential itself, when it can
// read who is a member. Who comes earlier waits.
type lateIdentity struct {
	there  chan struct{} // closed when keeper is there
	keeper *identity.Keeper
}

var _ peer.Identity = (*lateIdentity)(nil)

func newLateIdentity() *lateIdentity { return &lateIdentity{there: make(chan struct{})} }

func (l *lateIdentity) set(k *identity.Keeper) {
	l.keeper = k
	close(l.there)
}

// lateMax is how long others wait for a service that starts.
const lateMax = 5 * time.Second

func (l *lateIdentity) await() (*identity.Keeper, error) {
	timer := time.NewTimer(lateMax)
	defer timer.Stop()
	select {
	case <-l.there:
		return l.keeper, nil
	case <-timer.C:
		return nil, errs.Newf(errs.Again, "identity", "", "the service is starting")
	}
}

// Certificate implements peer.Identity.
func (l *lateIdentity) Certificate() (*tls.Certificate, error) {
	k, err := l.await()
	if err != nil {
		return nil, err
	}
	return k.Certificate()
}

// Verify implements peer.Identity.
func (l *lateIdentity) Verify(chain [][]byte, kinds ...identity.Kind) (identity.Peer, error) {
	k, err := l.await()
	if err != nil {
		return identity.Peer{}, err
	}
	return k.Verify(chain, kinds...)
}

// Changed implements peer.Identity.
func (l *lateIdentity) Changed() <-chan struct{} {
	select {
	case <-l.there:
		return l.keeper.Changed()
	default:
		return l.there
	}
}
