package server

import (
	"slices"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
)

// TestPeerOf: only what a certificate says makes somebody of a peer, and a certificate that names
// nobody of a cluster is refused.
func TestPeerOf(t *testing.T) {
	uri := identity.Who{Cluster: identity.NewClusterID(), Kind: identity.Client, Name: "ana"}.String()
	ana := meta.Peer{Kind: identity.Client, Name: "ana"}
	for _, c := range []struct {
		proof fabric.Proof
		name  string
		want  meta.Peer
		kind  errs.Kind
	}{
		{fabric.ProofTLS, uri, ana, errs.OK},
		{fabric.ProofFrames, uri, ana, errs.OK},
		{fabric.ProofToken, uri, ana, errs.OK},
		{fabric.ProofToken, "secret", meta.Peer{}, errs.OK},
		{fabric.ProofHost, uri, meta.Peer{}, errs.OK},
		{fabric.ProofTLS, "h1.example", meta.Peer{}, errs.Perm},
		{fabric.ProofFrames, "", meta.Peer{}, errs.Perm},
	} {
		got, err := peerOf(fabric.Peer{Proof: c.proof, Name: c.name})
		if got != c.want || errs.KindOf(err) != c.kind {
			t.Errorf("%v %q: %v, %v", c.proof, c.name, got, err)
		}
	}
}

// sentry notes what it is asked.
type sentry struct {
	who      meta.Peer
	sessions []uint64
	err      error
}

func (s *sentry) Admit(p meta.Peer, sessions ...uint64) error {
	s.who, s.sessions = p, sessions
	return s.err
}

// TestAdmit: a member's request says whose it is, in the caller and in the context, and is refused
// where the service says so; whoever is of this host is not asked for.
func TestAdmit(t *testing.T) {
	uri := identity.Who{Cluster: identity.NewClusterID(), Kind: identity.Client, Name: "ana"}.String()
	ana := meta.Peer{Kind: identity.Client, Name: "ana"}
	guard := &sentry{}
	s := &Server{sentry: guard}
	a := meta.Args{Caller: meta.Caller{Session: 1}, Session: 2, Listen: meta.Listening{Session: 3}}
	ctx, err := s.admit(t.Context(), fabric.Peer{Proof: fabric.ProofTLS, Name: uri}, &a)
	if err != nil || a.Caller.Peer != ana || meta.PeerOf(ctx) != ana || guard.who != ana {
		t.Fatalf("%v: %v, %v, asked for %v", err, a.Caller.Peer, meta.PeerOf(ctx), guard.who)
	}
	if !slices.Equal(guard.sessions, []uint64{1, 2, 3}) {
		t.Fatalf("asked for sessions %v", guard.sessions)
	}
	guard.err = errs.Perm
	_, err = s.admit(t.Context(), fabric.Peer{Proof: fabric.ProofTLS, Name: uri}, &a)
	if errs.KindOf(err) != errs.Perm {
		t.Fatal(err)
	}
	guard.who = meta.Peer{}
	ctx, err = s.admit(t.Context(), fabric.Peer{Proof: fabric.ProofSecret, Name: "x"}, &a)
	if err != nil || guard.who != (meta.Peer{}) || a.Caller.Peer != (meta.Peer{}) ||
		meta.PeerOf(ctx) != (meta.Peer{}) {
		t.Fatalf("%v: somebody of this host is %v", err, a.Caller.Peer)
	}
}
