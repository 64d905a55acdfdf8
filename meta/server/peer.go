package server

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
)

// peerOf is who has sent a request. Who is of this host, and proves it by what only the cluster's
// owner can read, or by the kernel, is nobody in particular. A token was issued to whoever had
// proved to be its holder by another way.
func peerOf(p fabric.Peer) (meta.Peer, error) {
	switch p.Proof {
	case fabric.ProofNone, fabric.ProofHost, fabric.ProofSecret:
		return meta.Peer{}, nil
	}
	who, err := identity.ParseWho(p.Name)
	if err != nil && p.Proof == fabric.ProofToken {
		return meta.Peer{}, nil // of one who knows the secret
	}
	if err != nil {
		return meta.Peer{}, errs.New(errs.Perm, "meta.Serve", "", err)
	}
	return meta.Peer{Kind: who.Kind, Name: who.Name}, nil
}

// admit finds out who has sent a request, and says so in its arguments and in the context that is
// returned. Who was removed, or names a session that is not his, is refused.
func (s *Server) admit(ctx context.Context, from fabric.Peer, a *meta.Args) (
	context.Context, error) {

	p, err := peerOf(from)
	a.Caller.Peer = p
	if err != nil || p == (meta.Peer{}) {
		return ctx, err
	}
	if s.sentry != nil {
		err = s.sentry.Admit(p, a.Caller.Session, a.Session, a.Listen.Session)
	}
	return meta.WithPeer(ctx, p), err
}
