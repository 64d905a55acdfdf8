package capi

import (
	"bytes"
	"encoding/binary"
	"syscall"
	"time"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/seg"
)

// The structures of sluice.h as they lie in memory on a machine of 64 bits, little or big. The C
// part of the library compares the numbers below with those of its compiler.
//
//	options      |size u32 |flags u32 |credential p |secret p |providers p |progress p |name p
//	             |buffers u64 |retain u64 |pinned u64 |wait u32 |- u32 |
//	layout       |size u32 |width u32 |unit u64 |pool 64 |
//	iovec        |base p |len u64 |
//	piece, dim   |off, count i64 |len, stride i64 |
//	access       |kind u32 |count u32 |pieces, dims p |off i64 |block i64 |
//	memory       |base p |access |
//	parent       |base p |len u64 |pin u64 |
//	hints        |size u32 |count u32 |parents p |
//	request      |size u32 |op u32 |file h |tag u64 |buf p |len u64 |off i64 |memory p |access p
//	             |hints p |
//	completion   |tag u64 |result i64 |op u32 |- u32 |error 104 |
//	array_info   |size u32 |axes u32 |shape 64 i64 |element u64 |offset i64 |bytes i64 |flags u32
//	             |- u32 |dtype 128 |
//	slice        |start, count, step i64 |
//	tiling       |size u32 |flags u32 |shape, ghost p |
//	time         |sec i64 |nsec u32 |- u32 |
//	stat         |ino u64 |size i64 |space i64 |change u64 |mode u32 |nlink u32 |uid u32 |gid u32
//	             |rdev u32 |- u32 |atime |mtime |ctime |
//	dirent       |stat |name 256 |
//	statfs       |bytes u64 |free u64 |files u64 |- 40 |
const (
	OptionsBytes    = 80
	LayoutBytes     = 80
	IovecBytes      = 16
	PieceBytes      = 16
	AccessBytes     = 32
	MemoryBytes     = 8 + AccessBytes
	ParentBytes     = 24
	HintsBytes      = 16
	RequestBytes    = 72
	CompletionBytes = 128
	ArrayInfoBytes  = 8 + 8*shapeMax + 32 + 128
	SliceBytes      = 24
	TilingBytes     = 24
	TimeBytes       = 16
	StatBytes       = 56 + 3*TimeBytes
	DirentBytes     = StatBytes + nameBytes
	StatfsBytes     = 64

	nameBytes  = 256
	poolBytes  = 64
	errorBytes = 104
)

var native = binary.NativeEndian

// fields takes the fields of a structure one after the other. It is a copy: what a thread of the
// program changes meanwhile changes nothing.
type fields struct{ b []byte }

func (f *fields) u32() uint32 {
	v := native.Uint32(f.b)
	f.b = f.b[4:]
	return v
}

func (f *fields) u64() uint64 {
	v := native.Uint64(f.b)
	f.b = f.b[8:]
	return v
}

func (f *fields) i64() int64       { return int64(f.u64()) }
func (f *fields) pointer() uintptr { return uintptr(f.u64()) }

// copyOf is a structure, or an array of them.
func copyOf(s Space, what string, addr uintptr, n int) (fields, error) {
	if addr == 0 {
		return fields{}, fail(syscall.EFAULT, "a null pointer for %s", what)
	}
	b, err := view(s, addr, uint64(n))
	if err != nil {
		return fields{}, err
	}
	return fields{bytes.Clone(b)}, nil
}

// sized is copyOf for a structure that begins with its size, which is taken off.
func sized(s Space, what string, addr uintptr, n int) (fields, error) {
	f, err := copyOf(s, what, addr, 4)
	if err != nil {
		return f, err
	}
	if got := f.u32(); got != uint32(n) {
		return f, fail(syscall.EINVAL, "%s says that it has %d bytes, not %d: .size = sizeof was "+
			"forgotten, or another sluice.h was used", what, got, n)
	}
	if f, err = copyOf(s, what, addr, n); err == nil {
		f.u32()
	}
	return f, err
}

// options is struct sluice_options.
type options struct {
	trustLocal                                    bool
	credential, secret, providers, progress, name string
	buffers, retain, pinned                       uint64
	wait                                          time.Duration
}

const flagTrustLocal = 1

// sizeMax bounds what an option may ask for in bytes, so that it fits an int.
const sizeMax = 1 << 46

func readOptions(s Space, addr uintptr) (o options, err error) {
	if addr == 0 {
		return o, nil
	}
	f, err := sized(s, "struct sluice_options", addr, OptionsBytes)
	if err != nil {
		return o, err
	}
	flags := f.u32()
	if flags&^flagTrustLocal != 0 {
		return o, fail(syscall.EINVAL, "flags %#x of struct sluice_options", flags)
	}
	o.trustLocal = flags&flagTrustLocal != 0
	for _, to := range []*string{&o.credential, &o.secret, &o.providers, &o.progress, &o.name} {
		if *to, _, err = text(s, f.pointer()); err != nil {
			return o, err
		}
	}
	for _, to := range []*uint64{&o.buffers, &o.retain, &o.pinned} {
		if *to = f.u64(); *to > sizeMax {
			return o, fail(syscall.EINVAL, "%d bytes in struct sluice_options", *to)
		}
	}
	o.wait = time.Duration(f.u32()) * time.Millisecond
	if f.u32() != 0 {
		return o, fail(syscall.EINVAL, "struct sluice_options is not zero where it should be")
	}
	return o, nil
}

func readLayout(s Space, addr uintptr) (p layout.Policy, err error) {
	if addr == 0 {
		return p, nil
	}
	f, err := sized(s, "struct sluice_layout", addr, LayoutBytes)
	if err != nil {
		return p, err
	}
	width, unit := f.u32(), f.u64()
	if width > layout.WidthAll || unit > layout.UnitMax {
		return p, fail(syscall.EINVAL, "a layout of width %d and unit %d", width, unit)
	}
	p.Width, p.Unit = int(width), int64(unit)
	pool, _, ok := bytes.Cut(f.b[:poolBytes], []byte{0})
	if !ok {
		return p, fail(syscall.EINVAL, "the name of a pool without an end")
	}
	p.Pool = string(pool)
	return p, p.Validate()
}

// writeLayout fills a struct sluice_layout whose size the caller has set.
func writeLayout(s Space, addr uintptr, p layout.Policy) error {
	if _, err := sized(s, "struct sluice_layout", addr, LayoutBytes); err != nil {
		return err
	}
	b, err := view(s, addr, LayoutBytes)
	if err != nil {
		return err
	}
	native.PutUint32(b[4:], uint32(p.Width))
	native.PutUint64(b[8:], uint64(p.Unit))
	clear(b[16:])
	putText(b[16:], p.Pool)
	return nil
}

// iovecMax is IOV_MAX of Linux.
const iovecMax = 1024

// readIovecs is the buffers of preadv(2).
func readIovecs(s Space, addr uintptr, count int64) (bufs []region, err error) {
	if count < 0 || count > iovecMax {
		return nil, fail(syscall.EINVAL, "%d buffers; there may be %d", count, iovecMax)
	}
	if count == 0 {
		return nil, nil
	}
	f, err := copyOf(s, "struct iovec", addr, int(count)*IovecBytes)
	if err != nil {
		return nil, err
	}
	var sum uint64
	for range count {
		r := region{f.pointer(), f.u64()}
		if sum += r.n; r.n > bytesMax || sum > bytesMax {
			return nil, fail(syscall.EINVAL, "buffers of %d bytes", sum)
		}
		bufs = append(bufs, r)
	}
	return bufs, nil
}

// region is memory of the program.
type region struct {
	addr uintptr
	n    uint64
}

const (
	accessList = iota
	accessVector
)

// readAccess is a struct sluice_access. end bounds its bytes.
func readAccess(s Space, addr uintptr, end int64) (seg.Access, error) {
	f, err := copyOf(s, "struct sluice_access", addr, AccessBytes)
	if err != nil {
		return seg.Access{}, err
	}
	p, err := f.access(s, end)
	return p.at(0), err
}

// pattern is an access that can be moved.
type pattern struct {
	pieces []seg.Piece
	vector *seg.Vector // nil: pieces
}

// at is the access, each byte by bytes further on; none may come to lie before 0.
func (p *pattern) at(by int64) seg.Access {
	if p.vector != nil {
		v := *p.vector
		v.Off += by
		return seg.Strided(v)
	}
	if by != 0 {
		for i := range p.pieces {
			p.pieces[i].Off += by
		}
	}
	return seg.List(p.pieces)
}

// piecesMax is how many pieces an access may have, listed or as a vector that is expanded.
const piecesMax = 4 << 20

func (f *fields) access(s Space, end int64) (p pattern, err error) {
	k, count, parts, off, block := f.u32(), f.u32(), f.pointer(), f.i64(), f.i64()
	switch {
	case k == accessList && count > piecesMax:
		return p, fail(syscall.E2BIG, "%d pieces; there may be %d", count, piecesMax)
	case k == accessList:
		p.pieces, err = readList(s, parts, int(count), off)
	case k == accessVector && count > seg.MaxDims:
		return p, fail(syscall.EINVAL, "a vector of %d dimensions; there may be %d", count, seg.MaxDims)
	case k == accessVector:
		p.vector = &seg.Vector{Off: off, Block: block}
		p.vector.Dims, err = readDims(s, parts, int(count))
	default:
		return p, fail(syscall.EINVAL, "struct sluice_access of kind %d", k)
	}
	if err != nil {
		return p, err
	}
	if err := p.at(0).Validate(piecesMax, end); errs.KindOf(err) == errs.TooBig {
		return p, fail(syscall.E2BIG, "%v", err)
	} else if err != nil {
		return p, fail(syscall.EINVAL, "%v", err)
	}
	return p, nil
}

func readList(s Space, addr uintptr, count int, off int64) ([]seg.Piece, error) {
	if count == 0 {
		return nil, nil
	}
	f, err := copyOf(s, "struct sluice_piece", addr, count*PieceBytes)
	if err != nil {
		return nil, err
	}
	pieces := make([]seg.Piece, count)
	for i := range pieces {
		p := seg.Piece{Off: f.i64(), Len: f.i64()}
		at := p.Off + off
		if p.Len < 0 || at < 0 || off > 0 && at < p.Off || off < 0 && at > p.Off {
			return nil, fail(syscall.EINVAL, "piece %d is at %d + %d and has %d bytes", i, off, p.Off,
				p.Len)
		}
		pieces[i] = seg.Piece{Off: at, Len: p.Len}
	}
	return pieces, nil
}

func readDims(s Space, addr uintptr, count int) ([]seg.Dim, error) {
	if count == 0 {
		return nil, nil
	}
	f, err := copyOf(s, "struct sluice_dim", addr, count*PieceBytes)
	if err != nil {
		return nil, err
	}
	dims := make([]seg.Dim, count)
	for i := range dims {
		dims[i] = seg.Dim{Count: f.i64(), Stride: f.i64()}
	}
	return dims, nil
}

// readMemory is a struct sluice_memory.
func readMemory(s Space, addr uintptr) (base uintptr, p pattern, err error) {
	f, err := copyOf(s, "struct sluice_memory", addr, MemoryBytes)
	if err != nil {
		return 0, p, err
	}
	base = f.pointer()
	p, err = f.access(s, bytesMax)
	if err == nil && p.at(0).Len() > 0 && base == 0 {
		err = fail(syscall.EFAULT, "a null pointer for the base of struct sluice_memory")
	}
	return base, p, err
}

// parentsMax bounds a list of hints: a program has few allocations, or they are no hints.
const parentsMax = 4096

func readHints(s Space, addr uintptr) (parents []client.Parent, err error) {
	if addr == 0 {
		return nil, nil
	}
	f, err := sized(s, "struct sluice_hints", addr, HintsBytes)
	if err != nil {
		return nil, err
	}
	count, at := f.u32(), f.pointer()
	if count > parentsMax {
		return nil, fail(syscall.EINVAL, "%d parents; there may be %d", count, parentsMax)
	}
	if count == 0 {
		return nil, nil
	}
	if f, err = copyOf(s, "struct sluice_parent", at, int(count)*ParentBytes); err != nil {
		return nil, err
	}
	for range count {
		r, pin := region{f.pointer(), f.u64()}, f.u64()
		b, err := view(s, r.addr, r.n)
		if err != nil {
			return nil, err
		}
		parents = append(parents, client.Parent{Bytes: b, Pin: int64(min(pin, bytesMax))})
	}
	return parents, nil
}

// request is a struct sluice_request.
type request struct {
	op                    uint32
	file                  Handle
	tag                   uint64
	buf                   region
	off                   int64
	memory, access, hints uintptr
}

func readRequest(s Space, addr uintptr) (r request, err error) {
	f, err := sized(s, "struct sluice_request", addr, RequestBytes)
	if err != nil {
		return r, err
	}
	r.op, r.file, r.tag = f.u32(), Handle(f.u64()), f.u64()
	r.buf, r.off = region{f.pointer(), f.u64()}, f.i64()
	r.memory, r.access, r.hints = f.pointer(), f.pointer(), f.pointer()
	return r, nil
}

// completion is a struct sluice_completion.
type completion struct {
	tag    uint64
	result int64
	op     uint32
	text   string
}

func (c *completion) put(b []byte) {
	native.PutUint64(b, c.tag)
	native.PutUint64(b[8:], uint64(c.result))
	native.PutUint32(b[16:], c.op)
	clear(b[20:CompletionBytes])
	putText(b[24:CompletionBytes], c.text)
}

func putTime(b []byte, t meta.Time) {
	native.PutUint64(b, uint64(t.Sec))
	native.PutUint32(b[8:], uint32(t.Nsec))
	native.PutUint32(b[12:], 0)
}

// readTime is a struct sluice_time; zero for a null pointer.
func readTime(s Space, addr uintptr) (t time.Time, err error) {
	if addr == 0 {
		return t, nil
	}
	f, err := copyOf(s, "struct sluice_time", addr, TimeBytes)
	if err != nil {
		return t, err
	}
	sec, nsec := f.i64(), f.u32()
	if nsec >= 1e9 {
		return t, fail(syscall.EINVAL, "%d nanoseconds are a second and more", nsec)
	}
	return time.Unix(sec, int64(nsec)), nil
}

// typeBits are the bits of st_mode for what an inode is.
func typeBits(t meta.Type) uint32 {
	switch t {
	case meta.Directory:
		return syscall.S_IFDIR
	case meta.Symlink:
		return syscall.S_IFLNK
	case meta.Fifo:
		return syscall.S_IFIFO
	case meta.Socket:
		return syscall.S_IFSOCK
	case meta.CharDevice:
		return syscall.S_IFCHR
	case meta.BlockDevice:
		return syscall.S_IFBLK
	}
	return syscall.S_IFREG
}

// blockBytes is the least space that a store keeps apart.
const blockBytes = 4096

// spaceOf is how many bytes of space a file takes; its length where nobody has asked.
func spaceOf(a *meta.Attr) int64 {
	if a.Type != meta.Regular || !a.Holes || a.Allocated < 0 {
		return (a.Size + blockBytes - 1) / blockBytes * blockBytes
	}
	return a.Allocated
}

func putStat(b []byte, a *meta.Attr) {
	native.PutUint64(b, uint64(a.Ino))
	native.PutUint64(b[8:], uint64(a.Size))
	native.PutUint64(b[16:], uint64(spaceOf(a)))
	native.PutUint64(b[24:], a.DataVersion)
	for i, v := range []uint32{typeBits(a.Type) | a.Mode, a.Nlink, a.UID, a.GID, a.Rdev, 0} {
		native.PutUint32(b[32+4*i:], v)
	}
	for i, t := range []meta.Time{a.Atime, a.Mtime, a.Ctime} {
		putTime(b[56+TimeBytes*i:], t)
	}
}

func writeStat(s Space, addr uintptr, a *meta.Attr) error {
	b, err := out(s, "struct sluice_stat", addr, StatBytes)
	if err == nil {
		putStat(b, a)
	}
	return err
}

// out is a structure to be filled.
func out(s Space, what string, addr uintptr, n int) ([]byte, error) {
	if addr == 0 {
		return nil, fail(syscall.EFAULT, "a null pointer for %s", what)
	}
	return view(s, addr, uint64(n))
}

// writeDirent fills a struct sluice_dirent.
func writeDirent(s Space, addr uintptr, e *meta.Entry) error {
	b, err := out(s, "struct sluice_dirent", addr, DirentBytes)
	if err != nil {
		return err
	}
	a := e.Attr
	if a == nil { // it was removed meanwhile
		a = &meta.Attr{Ino: e.Ino, Type: e.Type}
	}
	putStat(b, a)
	clear(b[StatBytes:])
	putText(b[StatBytes:], e.Name)
	return nil
}

func writeStatfs(s Space, addr uintptr, st *meta.FSStat) error {
	b, err := out(s, "struct sluice_statfs", addr, StatfsBytes)
	if err != nil {
		return err
	}
	clear(b)
	native.PutUint64(b, uint64(st.Total))
	native.PutUint64(b[8:], uint64(st.Free))
	native.PutUint64(b[16:], uint64(st.Files))
	return nil
}
