package meta

import "context"

type peerKey struct{}

// WithPeer returns a context for requests of a member that carry no Caller: package server makes
// one for whoever has proved to be somebody.
func WithPeer(ctx context.Context, p Peer) context.Context {
	if p == (Peer{}) {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, p)
}

// PeerOf is the member that a request comes from, as Caller.Peer says it of others.
func PeerOf(ctx context.Context) Peer {
	p, _ := ctx.Value(peerKey{}).(Peer)
	return p
}

// String is for people.
func (p Peer) String() string {
	if p == (Peer{}) {
		return "this host"
	}
	return p.Kind.String() + " " + p.Name
}

// Sentry is what a Service may offer besides, for package server: to say at once that a member has
// no business here.
type Sentry interface {
	// Admit refuses a request of a member that was removed, or that names a session which another one
	// has opened (errs.Perm). A session that is not known is nobody's. The zero Peer is never asked
	// for.
	Admit(p Peer, sessions ...uint64) error
}
