package iod

import (
	"context"
	"errors"
	"math"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/wire"
)

// Naive is an I/O server as one writes it without a cache of one's own: one file, the kernel's page
// cache, and either a buffer for the file and another for the network (Normal), or a mapping of
// what a request names, for as long as the request takes (Mmap, as the paper on Unifier has it),
// or a mapping of the whole file for good (Kept), which costs nothing but address space, as long
// as files are few and do not change their size. It speaks the protocol of package iod, so that its
// clients do what ours do, but checks no capability and knows one object. Where checksums are asked
// for it sums what it sends and what it has received, each time: it has no place to keep sums in.
type Naive struct {
	node   *msg.Node
	file   *os.File
	kind   string
	bytes  int64
	mapped []byte // of Kept

	// Of Normal: buffers for the network, in memory that the node knows, and for the file.
	arena *mem.Arena
	sends *mem.Pool
	files chan []byte
}

// naiveBuffers is how many requests have buffers at once; more wait.
const naiveBuffers = 8

// NewNaive makes a server of a kind on a new file of so many bytes.
func NewNaive(node *msg.Node, kind, path string, bytes int64) (*Naive, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	h := &Naive{node: node, file: f, kind: kind, bytes: bytes}
	switch err = f.Truncate(bytes); {
	case err != nil:
	case kind == Kept:
		h.mapped, err = h.mapping(seg.Piece{Len: bytes})
	case kind == Normal:
		err = h.buffers()
	}
	if err != nil {
		return nil, errors.Join(errs.Wrap("bench peer", path, err), h.Close())
	}
	return h, nil
}

func (h *Naive) buffers() (err error) {
	if h.arena, err = mem.NewArena(mem.PoolBytes(iod.TransferMax, naiveBuffers), nil); err != nil {
		return err
	}
	if h.sends, err = mem.NewPool(h.arena, iod.TransferMax, naiveBuffers); err != nil {
		return err
	}
	h.files = make(chan []byte, naiveBuffers)
	for range naiveBuffers {
		h.files <- make([]byte, iod.TransferMax)
	}
	return h.node.Attach(h.arena)
}

// Close gives everything back. The node serves no more.
func (h *Naive) Close() error {
	var failed []error
	if h.mapped != nil {
		failed = append(failed, unix.Munmap(h.mapped))
	}
	if h.arena != nil {
		h.node.Detach(h.arena)
		failed = append(failed, h.arena.Close())
	}
	return errors.Join(append(failed, h.file.Close())...)
}

// Serve implements msg.Handler.
func (h *Naive) Serve(ctx context.Context, c *msg.Call) {
	op := iod.Op(c.Header().Op)
	var r iod.Request
	err := r.Decode(op, c.Header().Stamp, c.Body())
	switch {
	case err != nil:
	case op == iod.OpRead && h.kind == Normal:
		h.read(ctx, c, &r)
		return
	case op == iod.OpRead:
		h.readMapped(ctx, c, &r)
		return
	case op == iod.OpWrite && h.kind == Normal:
		err = h.write(ctx, c, &r)
	case op == iod.OpWrite:
		err = h.writeMapped(ctx, c, &r)
	case op == iod.OpSync:
		err = h.file.Sync()
	default:
		err = errs.Newf(errs.Unsupported, "bench peer", "", "request %d", op)
	}
	if err != nil {
		_ = c.Fail(err) // a client that is gone does not care
		return
	}
	var e wire.Enc
	iod.AppendMark(&e, iod.Mark{Verifier: 1})
	_ = c.Reply(e.B, 0)
}

// answerRead ends a read of n bytes, whose pieces are summed if that was asked for.
func answerRead(c *msg.Call, r *iod.Request, n int64, pieces []fabric.Sge, err error) {
	if err != nil {
		_ = c.Fail(err)
		return
	}
	var e wire.Enc
	var sums []uint32
	if !r.Target.How.NoSums {
		sums = sumsOf(pieces)
	}
	iod.AppendData(&e, iod.Mark{Verifier: 1}, sums)
	_ = c.Reply(e.B, n)
}

// sumsOf are the checksums of a transfer.
func sumsOf(pieces []fabric.Sge) []uint32 {
	var s iod.Summing
	for _, p := range pieces {
		s.Add(p.Buf)
	}
	return s.Sums()
}

// verify holds what has arrived against its checksums, if there are any.
func verify(r *iod.Request, pieces []fabric.Sge) error {
	if r.Target.How.NoSums || slices.Equal(sumsOf(pieces), r.Args.Sums) {
		return nil
	}
	return errs.Newf(errs.Corrupt, "bench peer", "", "the data is not what was sent")
}

// read is of Normal. Its buffers are its own until the reply has left.
func (h *Naive) read(ctx context.Context, c *msg.Call, r *iod.Request) {
	file := <-h.files
	defer func() { h.files <- file }()
	send, err := h.sends.Take(ctx)
	if err != nil {
		_ = c.Fail(err)
		return
	}
	defer send.Return()
	var n int64
	for cur := r.Args.Access.Cursor(); err == nil; {
		p, ok := cur.Next(math.MaxInt64)
		if !ok {
			break
		}
		if _, err = h.file.ReadAt(file[n:n+p.Len], p.Off); err == nil {
			n += p.Len
		}
	}
	pieces := window(send.Bytes()[:n])
	if err == nil {
		mem.Copy(send.Bytes(), file[:n])
		err = c.Push(ctx, 0, pieces)
	}
	answerRead(c, r, n, pieces, err)
}

func (h *Naive) write(ctx context.Context, c *msg.Call, r *iod.Request) error {
	file := <-h.files
	defer func() { h.files <- file }()
	recv, err := h.sends.Take(ctx)
	if err != nil {
		return err
	}
	defer recv.Return()
	n := c.OutLen()
	pieces := window(recv.Bytes()[:n])
	if err := c.Pull(ctx, 0, pieces); err != nil {
		return err
	}
	if err := verify(r, pieces); err != nil {
		return err
	}
	mem.Copy(file, recv.Bytes()[:n])
	n = 0
	for cur := r.Args.Access.Cursor(); ; {
		p, ok := cur.Next(math.MaxInt64)
		if !ok {
			return nil
		}
		if _, err := h.file.WriteAt(file[n:n+p.Len], p.Off); err != nil {
			return err
		}
		n += p.Len
	}
}

// mapping maps a part of the file, with all its pages at once.
func (h *Naive) mapping(part seg.Piece) ([]byte, error) {
	return unix.Mmap(int(h.file.Fd()), part.Off, int(part.Len), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE)
}

// pieces are the parts of the file that an access names, in a mapping; done ends it.
func (h *Naive) pieces(a seg.Access) (list []fabric.Sge, done func(), err error) {
	span := a.Span()
	if span.Off < 0 || span.End() > h.bytes {
		return nil, nil, errs.Newf(errs.OutOfRange, "bench peer", "", "%d bytes at %d", span.Len,
			span.Off)
	}
	from, base, done := h.mapped, int64(0), func() {}
	if h.kind == Mmap {
		base = span.Off &^ int64(os.Getpagesize()-1)
		if from, err = h.mapping(seg.Piece{Off: base, Len: span.End() - base}); err != nil {
			return nil, nil, err
		}
		done = func() { _ = unix.Munmap(from) } // what mapped it unmaps it
	}
	for cur := a.Cursor(); ; {
		p, ok := cur.Next(math.MaxInt64)
		if !ok {
			return list, done, nil
		}
		list = append(list, fabric.Sge{Buf: from[p.Off-base : p.End()-base : p.End()-base]})
	}
}

func (h *Naive) readMapped(ctx context.Context, c *msg.Call, r *iod.Request) {
	list, done, err := h.pieces(r.Args.Access)
	if err != nil {
		_ = c.Fail(err)
		return
	}
	defer done()
	answerRead(c, r, c.InLen(), list, c.Push(ctx, 0, list))
}

func (h *Naive) writeMapped(ctx context.Context, c *msg.Call, r *iod.Request) error {
	list, done, err := h.pieces(r.Args.Access)
	if err != nil {
		return err
	}
	defer done()
	if err := c.Pull(ctx, 0, list); err != nil {
		return err
	}
	return verify(r, list) // too late: others may have seen it
}
