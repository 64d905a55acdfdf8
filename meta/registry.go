package meta

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
)

// The registry is what a cluster knows of identities: tokens by which hosts and clients may join,
// the members that have joined, serial numbers that are refused, and which generation of the
// cluster's keys is current. Package join is its user; people see it by the commands token, host,
// client and key.
//
// All of it is for root and the owner of the root directory, else errs.Perm. Changes are on stable
// storage when they return. Times are those of the service, in nanoseconds since 1970; a token that
// has run out is as good as gone, and is forgotten some time later.

// Tokens lets new members in.
type Tokens interface {
	// CreateToken adds a token. ID, Hash and Expires are the caller's to choose; Used and Created
	// are the service's. A Created that is not 0 is the time by the caller's clock, which may be
	// wrong: the token lasts as long from now on as from then to Expires. errs.Exists: the id is
	// taken. errs.Quota: there are TokensMax of them.
	CreateToken(ctx context.Context, c Caller, t Token) (Token, error)

	// ListTokens returns up to max tokens (MemberPageMax at the most) whose ids are above after, in
	// order. An empty page is the end.
	ListTokens(ctx context.Context, c Caller, after uint64, max int) ([]Token, error)

	// RemoveToken ends a token. Who joined by it stays. errs.NotFound: there is none.
	RemoveToken(ctx context.Context, c Caller, id uint64) error

	// UseToken makes a member, or gives another certificate to one, in one step: with its last use a
	// token lets in exactly one of those who try at the same time. One who repeats it with the key
	// that it came with before gets the same member without using the token again, as long as the
	// token has not run out; that is how a joiner whose answer was lost goes on.
	//
	// errs.NotFound: there is no such token. errs.Forged: the secret is wrong. errs.Expired: it has
	// run out. errs.Quota: it is used up. errs.Invalid: the name is not the token's. errs.Exists: the
	// name belongs to another member, of which a certificate has not ended. A client's name may be
	// shared by those who join by one token.
	UseToken(ctx context.Context, c Caller, u TokenUse) (Member, error)
}

// Members keeps those who have joined.
type Members interface {
	// ListMembers returns up to max members of a kind (MemberPageMax at the most) whose names are
	// above after, in order. An empty page is the end.
	ListMembers(ctx context.Context, c Caller, kind identity.Kind, after string, max int) (
		[]Member, error)

	// GetMember returns one; errs.NotFound if there is none.
	GetMember(ctx context.Context, c Caller, kind identity.Kind, name string) (Member, error)

	// EnlistMember makes a member without a token: the host on which the cluster is made. A member of
	// that name that is there already gets the certificate too.
	EnlistMember(ctx context.Context, c Caller, m Member) (Member, error)

	// RenewMember notes another certificate of a member that shows the one with the serial by. Those
	// that it had stay valid until they run out. errs.Forged: by is not one of its certificates, or
	// there is no such member any more. errs.Quota: it has CertificatesMax that have not run out.
	RenewMember(ctx context.Context, c Caller, kind identity.Kind, name string, by identity.Serial,
		cert Certificate) (Member, error)

	// RemoveMember forgets a member and puts all of its certificates on the deny list, in one step.
	// Its sessions end as those of a client that has died; requests of it are refused from then on,
	// and so are its I/O servers, if it is a host: then there will be another secret, too (Registry's
	// SecretMin). errs.NotFound: there is none.
	RemoveMember(ctx context.Context, c Caller, kind identity.Kind, name string) error
}

// Denials is the deny list, and the state of the registry as a whole.
type Denials interface {
	// ListDenied returns up to max serial numbers (DeniedPageMax at the most) above after, in order.
	// Those of certificates that have run out are left out, and forgotten some time later. An empty
	// page is the end.
	ListDenied(ctx context.Context, c Caller, after identity.Serial, max int) ([]Denied, error)

	// Registry tells the state of the registry: what must be known to notice a change.
	Registry(ctx context.Context, c Caller) (Registry, error)

	// SetGeneration says that a key of the cluster has another generation: the first one, a later one,
	// or, repeated, the one that it has with the same fingerprint. Retired ends the one before.
	// errs.Conflict otherwise: the key is not the one that is known, or was replaced since.
	SetGeneration(ctx context.Context, c Caller, what identity.KeyKind, g Generation) (Registry, error)
}

// Limits of the registry.
const (
	TokensMax       = 4096
	TokenUsesMax    = 1000 // of one token
	CertificatesMax = 32   // of one member, that have not run out: all are denied in one transaction
	MemberPageMax   = 64
	DeniedPageMax   = 1024
	NoteMax         = 255 // bytes
)

// Token is a way in. Its secret is known to whoever was given its text; here is its hash.
type Token struct {
	ID      uint64
	Hash    identity.Hash
	Kind    identity.Kind   // what one becomes by it
	Name    string          // under which name; empty: the joiner chooses
	Roles   identity.Roles  // of a host
	Rights  identity.Rights // of a client
	Uses    uint32          // how often it may be used: 1 to TokenUsesMax
	Used    uint32          // how often it was
	Created int64
	Expires int64
	Note    string // who made it, and what for; for people
}

// TokenUse is an attempt to join.
type TokenUse struct {
	ID          uint64
	Hash        identity.Hash // of the secret that was shown
	Name        string        // empty: the token's
	Key         identity.Hash // of the joiner's public key: who repeats a join shows the same one
	Certificate Certificate   // that it is going to get
}

// Certificate is what is known of one.
type Certificate struct {
	Serial   identity.Serial
	NotAfter int64
}

// Member is a host or a client.
type Member struct {
	Kind         identity.Kind
	Name         string
	Roles        identity.Roles  // of a host
	Rights       identity.Rights // of a client
	Token        uint64          // by which it joined; 0: by none
	Joined       int64
	Renewed      int64 // when it got its latest certificate
	Certificates []Certificate
}

// Denied is a certificate that is refused.
type Denied struct {
	Certificate
	Kind identity.Kind // whose it was
	Name string
	At   int64
}

// Generation is which key of a kind is current. The one before it is valid too until it is retired.
type Generation struct {
	Number      uint64 // from 1; 0: there is no key
	Fingerprint identity.Hash
	Since       int64
	Retired     bool // the one before is not valid any more
}

// Registry is the state of the registry.
type Registry struct {
	Authority Generation
	Secret    Generation
	Denials   uint64 // changes with the deny list

	// SecretMin is the least generation that the secret should have: a host that was removed knows
	// keys of the one before. Who has the authority sees to it.
	SecretMin uint64

	// Signs is the generation of the key that signs capabilities now: see SecretGen.
	Signs uint32
}

// Check refuses what no request can carry.
func (a *RegistryArgs) Check() error {
	for _, name := range []string{a.Token.Name, a.Use.Name, a.Member.Name} {
		if len(name) > identity.NameMax {
			return errs.NameTooLong
		}
	}
	for _, r := range []*identity.Rights{&a.Token.Rights, &a.Member.Rights} {
		if len(r.Path) > identity.PathMax || len(r.Volumes) > identity.VolumesMax {
			return errs.TooBig
		}
		for _, v := range r.Volumes {
			if len(v) > NameMax {
				return errs.NameTooLong
			}
		}
	}
	if len(a.Token.Note) > NoteMax || len(a.Member.Certificates) > CertificatesMax {
		return errs.TooBig
	}
	return nil
}
