package meta

import (
	"context"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/wire"
)

// ServerKeys gives the I/O servers of all hosts their ids and keys. A request is one of the host
// that its Peer is, which must be a member with the role iod; the zero Peer is the service's own
// host. Everybody else, and a host that was removed, is errs.Perm.
type ServerKeys interface {
	// ReserveServers gives n ids, 1 to ReserveMax, that follow each other and that nobody else gets,
	// ever. host is the name of the service's own host; others are known by theirs. errs.Quota: the
	// host has HostServersMax of them, or all together are too many.
	ReserveServers(ctx context.Context, c Caller, host string, n int) ([]uint32, error)

	// ServerKeys returns the keys of an I/O server, the one that is signed with first. have is the
	// highest generation that the server knows by now, 0 for none: what it was told and has not
	// confirmed is not relied on. It is asked again and again, because keys change. An id that belongs
	// to another host is errs.Perm. One of the first servers of a cluster, that nobody has reserved,
	// belongs to the service's own host.
	ServerKeys(ctx context.Context, c Caller, id, have uint32) (capability.Ring, error)
}

// Limits of ids.
const (
	ReserveMax     = 16  // of one request
	HostServersMax = 256 // of one host
)

// SecretGen is the generation of the keys that are derived from a generation of the cluster's
// secret. The first one is that of clusters without an authority, whose key is no such secret: a
// cluster that gets an authority has later keys by that, not others of the same number.
func SecretGen(secret uint64) uint32 { return uint32(secret) + capability.First }

// SecretOf is the reverse of SecretGen; 0: the key is not derived from a secret.
func SecretOf(gen uint32) uint64 { return uint64(max(gen, capability.First)) - capability.First }

// SecretRing is the keys of a cluster's secrets.
func SecretRing(secrets []identity.ClusterKey) capability.Ring {
	ring := make(capability.Ring, len(secrets))
	for i := range secrets {
		ring[i] = capability.Numbered{Gen: SecretGen(secrets[i].Generation),
			Key: capability.Derive(secrets[i].Secret)}
	}
	return ring
}

// ringBytes is one key on the wire: |generation u32 |key 32 |.
const ringBytes = 4 + 32

var (
	argServerID = regArg(func(a *RegistryArgs) *uint32 { return &a.Server }, encU32, decU32)
	argHave     = regArg(func(a *RegistryArgs) *uint32 { return &a.Have }, encU32, decU32)

	resIDs = many(func(r *Result) *[]uint32 { return &regRes(r).Servers }, ReserveMax, 4, encU32,
		decU32)
	resRing = many(func(r *Result) *[]capability.Numbered {
		return (*[]capability.Numbered)(&regRes(r).Ring)
	}, capability.RingMax, ringBytes,
		func(e *wire.Enc, k *capability.Numbered) {
			e.U32(k.Gen)
			e.Raw(k.Key[:])
		},
		func(d *wire.Dec, k *capability.Numbered) {
			k.Gen = d.U32()
			copy(k.Key[:], d.Raw(len(k.Key)))
		})
)

func encU32(e *wire.Enc, v *uint32) { e.U32(*v) }
func decU32(d *wire.Dec, v *uint32) { *v = d.U32() }
