package meta

import (
	"context"

	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/wire"
)

// Layouts lets users say how files are striped.
//
// A directory has a policy for what is made in it from then on: files are striped by it, new
// directories begin with it. So the nearest one counts, and changing it leaves alone what is there.
// What a policy leaves open, and all of it where there is none, the cluster chooses. NewFile may
// say something else for one file, part by part.
//
// The width of a policy is a wish: servers that are away, or have no room, are left out. A width of
// NewFile is followed exactly, or refused: errs.Again where too few servers are up, errs.NoSpace
// where too few have room.
//
// The same can be done by extended attributes: those that package layout names are policies. On a
// regular file layout.AttrUnit, AttrWidth and AttrPool tell how it is striped, and are as SetLayout
// when they are set or removed; they are not listed. layout.AttrAll is its policy, and is listed if
// there is one, so that programs that copy files take it along. These set it when the copy has its
// data already: then it is noted and the striping stays as it is, and where it names a pool that is
// not there that is left out.
type Layouts interface {
	// GetLayout tells the policy of a directory or a regular file (errs.Invalid for others), and how a
	// file is striped.
	GetLayout(ctx context.Context, c Caller, ino Ino) (Placed, error)

	// SetLayout gives a directory a policy, or a regular file that nothing was ever written to, which
	// is placed anew. errs.NotEmpty: the file has, or had, data. errs.Busy: another client has it
	// open. errs.Invalid: there is no such pool, or it has fewer servers than the width. Whoever may
	// write to it may do so. The caller's session renews the handles that it has (Files.Renew).
	SetLayout(ctx context.Context, c Caller, ino Ino, p layout.Policy) error
}

// Placed is what GetLayout tells.
type Placed struct {
	Policy layout.Policy // what was asked for
	Layout layout.Layout // of a regular file: what came of it
}

// Pools keeps named sets of I/O servers. A server may be in several. Files stay where they are,
// whatever becomes of a pool; a directory whose pool was removed has none, even if there is another
// one of that name later. Only root and the owner of the root directory change pools (errs.Perm).
type Pools interface {
	// CreatePool makes a pool of servers that have joined; it may be empty. errs.Exists if there is
	// one of that name, errs.Invalid for a server that is not known, errs.NoSpace beyond PoolsMax.
	CreatePool(ctx context.Context, c Caller, name string, servers []uint32) (Pool, error)

	// ChangePool adds servers to a pool and takes some out: without effect for those that are in it
	// already, or are not. errs.NotFound if there is no such pool.
	ChangePool(ctx context.Context, c Caller, name string, add, remove []uint32) (Pool, error)

	RemovePool(ctx context.Context, c Caller, name string) error

	// ListPools returns all pools in the order of their names.
	ListPools(ctx context.Context, c Caller) ([]Pool, error)
}

// Bounds of pools. A list of all of them with all of their servers has some 130 KiB.
const (
	PoolsMax       = 32
	PoolServersMax = 1024
)

// Pool is a named set of I/O servers.
type Pool struct {
	Name    string
	ID      uint64 // never used twice
	Servers []uint32
}

// poolBytes is the smallest pool on the wire.
const poolBytes = 4 + 8 + 4

var (
	argPolicy = one(func(a *Args) *layout.Policy { return &a.Policy }, encPolicy, decPolicy)
	argAdd    = servers(func(a *Args) *[]uint32 { return &a.Add })
	argDrop   = servers(func(a *Args) *[]uint32 { return &a.Drop })

	resPool  = one(func(r *Result) *Pool { return &r.Pool }, encPool, decPool)
	resPools = many(func(r *Result) *[]Pool { return &r.Pools }, PoolsMax, poolBytes, encPool, decPool)
)

// resPlaced is |policy |layout |.
var resPlaced = one(func(r *Result) *Placed { return &r.Placed },
	func(e *wire.Enc, p *Placed) {
		p.Policy.Append(e)
		p.Layout.Append(e)
	},
	func(d *wire.Dec, p *Placed) {
		p.Policy = layout.DecodePolicy(d)
		p.Layout = layout.Decode(d)
	})

// servers is a list of ids of servers.
func servers[T any](at func(*T) *[]uint32) field[T] {
	return many(at, PoolServersMax, 4, func(e *wire.Enc, v *uint32) { e.U32(*v) },
		func(d *wire.Dec, v *uint32) { *v = d.U32() })
}

func encPolicy(e *wire.Enc, p *layout.Policy) { p.Append(e) }
func decPolicy(d *wire.Dec, p *layout.Policy) { *p = layout.DecodePolicy(d) }

// encPool is |name |id u64 |count u32 |count x server u32 |.
func encPool(e *wire.Enc, p *Pool) {
	e.String(p.Name)
	e.U64(p.ID)
	poolServers.enc(e, p)
}

func decPool(d *wire.Dec, p *Pool) {
	p.Name = d.String(layout.PoolNameMax)
	p.ID = d.U64()
	poolServers.dec(d, p)
}

var poolServers = servers(func(p *Pool) *[]uint32 { return &p.Servers })
