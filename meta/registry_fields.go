package meta

import (
	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/wire"
)

// RegistryArgs are the arguments of the registry's operations. They are few and seldom used: Args
// points to them, so that all others are not larger because of them.
type RegistryArgs struct {
	Token       Token
	Use         TokenUse
	Member      Member
	Kind        identity.Kind
	Serial      identity.Serial
	Certificate Certificate
	Key         identity.KeyKind
	Generation  Generation
	Server      uint32 // an id
	Have        uint32
}

// RegistryResult is the answer of such an operation.
type RegistryResult struct {
	Token    Token
	Tokens   []Token
	Member   Member
	Members  []Member
	Denied   []Denied
	Registry Registry
	Servers  []uint32 // ids
	Ring     capability.Ring
}

// The smallest items, for lists.
const (
	certBytes   = 16 + 8
	rightsBytes = 4 + 1 + 1 + 4
	tokenBytes  = 8 + 32 + 1 + 4 + 1 + rightsBytes + 2*4 + 2*8 + 4
	memberBytes = 1 + 4 + 1 + rightsBytes + 3*8 + 4
	deniedBytes = certBytes + 1 + 4 + 8
)

// regArg is a part of RegistryArgs, and regRes one of RegistryResult.
func regArg[V any](at func(*RegistryArgs) *V, enc func(*wire.Enc, *V),
	dec func(*wire.Dec, *V)) field[Args] {
	return one(func(a *Args) *V {
		if a.Registry == nil {
			a.Registry = &RegistryArgs{}
		}
		return at(a.Registry)
	}, enc, dec)
}

func regRes(r *Result) *RegistryResult {
	if r.Registry == nil {
		r.Registry = &RegistryResult{}
	}
	return r.Registry
}

var (
	argToken = regArg(func(a *RegistryArgs) *Token { return &a.Token }, encToken, decToken)
	argUse   = regArg(func(a *RegistryArgs) *TokenUse { return &a.Use }, encUse, decUse)

	argMember = regArg(func(a *RegistryArgs) *Member { return &a.Member }, encMember, decMember)
	argKind   = regArg(func(a *RegistryArgs) *identity.Kind { return &a.Kind }, encKind, decKind)
	argSerial = regArg(func(a *RegistryArgs) *identity.Serial { return &a.Serial }, encSerial,
		decSerial)
	argCert = regArg(func(a *RegistryArgs) *Certificate { return &a.Certificate }, encCert, decCert)
	argKey  = regArg(func(a *RegistryArgs) *identity.KeyKind { return &a.Key },
		func(e *wire.Enc, k *identity.KeyKind) { e.U8(uint8(*k)) },
		func(d *wire.Dec, k *identity.KeyKind) { *k = identity.KeyKind(d.U8()) })
	argGeneration = regArg(func(a *RegistryArgs) *Generation { return &a.Generation },
		encGeneration, decGeneration)

	resToken  = one(func(r *Result) *Token { return &regRes(r).Token }, encToken, decToken)
	resTokens = many(func(r *Result) *[]Token { return &regRes(r).Tokens }, MemberPageMax, tokenBytes,
		encToken, decToken)
	resMember  = one(func(r *Result) *Member { return &regRes(r).Member }, encMember, decMember)
	resMembers = many(func(r *Result) *[]Member { return &regRes(r).Members }, MemberPageMax,
		memberBytes, encMember, decMember)
	resDenied = many(func(r *Result) *[]Denied { return &regRes(r).Denied }, DeniedPageMax,
		deniedBytes, encDenied, decDenied)
	resRegistry = one(func(r *Result) *Registry { return &regRes(r).Registry }, encRegistry,
		decRegistry)
)

// Append adds the bytes of a token, as the store keeps them, too:
//
//	|id u64 |hash 32 |kind u8 |name |roles u8 |rights |uses u32 |used u32 |created i64 |expires i64 |
//	|note |
func (t *Token) Append(e *wire.Enc) {
	e.U64(t.ID)
	e.Raw(t.Hash[:])
	encKind(e, &t.Kind)
	e.String(t.Name)
	e.U8(uint8(t.Roles))
	encRights(e, &t.Rights)
	e.U32(t.Uses)
	e.U32(t.Used)
	e.I64(t.Created)
	e.I64(t.Expires)
	e.String(t.Note)
}

// Decode is the reverse of Append.
func (t *Token) Decode(d *wire.Dec) {
	t.ID = d.U64()
	copy(t.Hash[:], d.Raw(len(t.Hash)))
	decKind(d, &t.Kind)
	t.Name = d.String(identity.NameMax)
	t.Roles = identity.Roles(d.U8())
	decRights(d, &t.Rights)
	t.Uses = d.U32()
	t.Used = d.U32()
	t.Created = d.I64()
	t.Expires = d.I64()
	t.Note = d.String(NoteMax)
}

func encToken(e *wire.Enc, t *Token) { t.Append(e) }
func decToken(d *wire.Dec, t *Token) { t.Decode(d) }

// encUse: |id u64 |hash 32 |name |key 32 |certificate |.
func encUse(e *wire.Enc, u *TokenUse) {
	e.U64(u.ID)
	e.Raw(u.Hash[:])
	e.String(u.Name)
	e.Raw(u.Key[:])
	encCert(e, &u.Certificate)
}

func decUse(d *wire.Dec, u *TokenUse) {
	u.ID = d.U64()
	copy(u.Hash[:], d.Raw(len(u.Hash)))
	u.Name = d.String(identity.NameMax)
	copy(u.Key[:], d.Raw(len(u.Key)))
	decCert(d, &u.Certificate)
}

// Append adds the bytes of a member, as the store keeps them, too:
//
//	|kind u8 |name |roles u8 |rights |token u64 |joined i64 |renewed i64 |count u32 |
//	|count x certificate |
func (m *Member) Append(e *wire.Enc) {
	encKind(e, &m.Kind)
	e.String(m.Name)
	e.U8(uint8(m.Roles))
	encRights(e, &m.Rights)
	e.U64(m.Token)
	e.I64(m.Joined)
	e.I64(m.Renewed)
	e.U32(uint32(len(m.Certificates)))
	for i := range m.Certificates {
		encCert(e, &m.Certificates[i])
	}
}

// Decode is the reverse of Append.
func (m *Member) Decode(d *wire.Dec) {
	decKind(d, &m.Kind)
	m.Name = d.String(identity.NameMax)
	m.Roles = identity.Roles(d.U8())
	decRights(d, &m.Rights)
	m.Token = d.U64()
	m.Joined = d.I64()
	m.Renewed = d.I64()
	m.Certificates = nil
	for range d.Count(CertificatesMax, certBytes) {
		var c Certificate
		decCert(d, &c)
		m.Certificates = append(m.Certificates, c)
	}
}

func encMember(e *wire.Enc, m *Member) { m.Append(e) }
func decMember(d *wire.Dec, m *Member) { m.Decode(d) }

// Append adds the bytes of a certificate that is refused, as the store keeps them, too:
// |certificate |kind u8 |name |at i64 |.
func (x *Denied) Append(e *wire.Enc) {
	encCert(e, &x.Certificate)
	encKind(e, &x.Kind)
	e.String(x.Name)
	e.I64(x.At)
}

// Decode is the reverse of Append.
func (x *Denied) Decode(d *wire.Dec) {
	decCert(d, &x.Certificate)
	decKind(d, &x.Kind)
	x.Name = d.String(identity.NameMax)
	x.At = d.I64()
}

func encDenied(e *wire.Enc, x *Denied) { x.Append(e) }
func decDenied(d *wire.Dec, x *Denied) { x.Decode(d) }

// Append adds the bytes of a generation, as the store keeps them, too:
// |number u64 |fingerprint 32 |since i64 |retired u8 |.
func (g *Generation) Append(e *wire.Enc) {
	e.U64(g.Number)
	e.Raw(g.Fingerprint[:])
	e.I64(g.Since)
	e.Bool(g.Retired)
}

// Decode is the reverse of Append.
func (g *Generation) Decode(d *wire.Dec) {
	g.Number = d.U64()
	copy(g.Fingerprint[:], d.Raw(len(g.Fingerprint)))
	g.Since = d.I64()
	g.Retired = d.Bool()
}

func encGeneration(e *wire.Enc, g *Generation) { g.Append(e) }
func decGeneration(d *wire.Dec, g *Generation) { g.Decode(d) }

// encRegistry: |authority |secret |denials u64 |least secret u64 |signs u32 |.
func encRegistry(e *wire.Enc, r *Registry) {
	r.Authority.Append(e)
	r.Secret.Append(e)
	e.U64(r.Denials)
	e.U64(r.SecretMin)
	e.U32(r.Signs)
}

func decRegistry(d *wire.Dec, r *Registry) {
	r.Authority.Decode(d)
	r.Secret.Decode(d)
	r.Denials = d.U64()
	r.SecretMin = d.U64()
	r.Signs = d.U32()
}

func encKind(e *wire.Enc, k *identity.Kind) { e.U8(uint8(*k)) }
func decKind(d *wire.Dec, k *identity.Kind) { *k = identity.Kind(d.U8()) }

func encSerial(e *wire.Enc, s *identity.Serial) { e.Raw(s[:]) }
func decSerial(d *wire.Dec, s *identity.Serial) { copy(s[:], d.Raw(len(s))) }

// encCert: |serial 16 |not after i64 |.
func encCert(e *wire.Enc, c *Certificate) {
	encSerial(e, &c.Serial)
	e.I64(c.NotAfter)
}

func decCert(d *wire.Dec, c *Certificate) {
	decSerial(d, &c.Serial)
	c.NotAfter = d.I64()
}

// encRights: |path |read-only u8 |squash u8 |count u32 |count x volume |.
func encRights(e *wire.Enc, r *identity.Rights) {
	e.String(r.Path)
	e.Bool(r.ReadOnly)
	e.U8(uint8(r.Squash))
	e.U32(uint32(len(r.Volumes)))
	for _, v := range r.Volumes {
		e.String(v)
	}
}

func decRights(d *wire.Dec, r *identity.Rights) {
	r.Path = d.String(identity.PathMax)
	r.ReadOnly = d.Bool()
	r.Squash = identity.Squash(d.U8())
	r.Volumes = nil
	for range d.Count(identity.VolumesMax, 4) {
		r.Volumes = append(r.Volumes, d.String(NameMax))
	}
}
