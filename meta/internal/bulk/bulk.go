// Package bulk is how requests and answers of the metadata service travel when they do not fit the
// body of a message: as a data segment. Most do fit. The first byte of every body says where the
// content is:
//
//	|0 |content |     in the body
//	|1 |              in the segment: Out of a request, In of a reply
//	|2 |bytes u32 |   replies only: nowhere, the caller must offer an In of that size
//
// A caller that gets the last one repeats the request with room for the answer; its request id
// makes that safe. It knows nothing of what the bytes mean.
package bulk

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/wire"
)

// Places of the content.
const (
	InBody    = 0
	InSegment = 1
	TooLarge  = 2
)

// Max bounds a request or an answer: a list of a hundred thousand volumes fits.
const Max = 16 << 20

// Memory is a piece of memory that a connection can move.
type Memory struct {
	Sge   fabric.Sge
	node  *msg.Node
	arena *mem.Arena // nil: ordinary memory
}

// Carrier is what the memory will be moved by: a msg.Conn or a msg.Call.
type Carrier interface{ AnyMemory() bool }

// New takes n bytes; Free must be called. Providers that move any memory get ordinary memory,
// others a mapping of its own, registered for as long as the request lasts.
func New(node *msg.Node, by Carrier, n int) (*Memory, error) {
	if by.AnyMemory() {
		return &Memory{Sge: fabric.Sge{Buf: make([]byte, n)}}, nil
	}
	a, err := mem.NewArena(n, nil)
	if err != nil {
		return nil, err
	}
	if err := node.Attach(a); err != nil {
		_ = a.Close()
		return nil, err
	}
	return &Memory{Sge: fabric.Sge{Buf: a.Bytes()[:n:n]}, node: node, arena: a}, nil
}

// Of is memory with the given bytes: their own where that can be moved. They must not change before
// Free.
func Of(node *msg.Node, by Carrier, b []byte) (*Memory, error) {
	if by.AnyMemory() {
		return &Memory{Sge: fabric.Sge{Buf: b}}, nil
	}
	m, err := New(node, by, len(b))
	if err == nil {
		copy(m.Bytes(), b)
	}
	return m, err
}

// Free ends the memory. A nil Memory is free already.
func (m *Memory) Free() {
	if m != nil && m.arena != nil {
		m.node.Detach(m.arena)
		_ = m.arena.Close()
	}
}

// Bytes is the memory.
func (m *Memory) Bytes() []byte { return m.Sge.Buf }

// Segment describes all of it for a request; nil for a nil Memory.
func (m *Memory) Segment() *msg.Memory {
	if m == nil {
		return nil
	}
	return &msg.Memory{Windows: []fabric.Sge{m.Sge}, Access: seg.Contig(0, int64(len(m.Sge.Buf)))}
}

// Need makes the body that says how much room an answer needs.
func Need(bytes int) []byte {
	e := wire.Enc{}
	e.U8(TooLarge)
	e.U32(uint32(bytes))
	return e.B
}

// Needed reads what Need wrote, behind the first byte.
func Needed(b []byte) (int, error) {
	d := wire.NewDec(b)
	n := d.U32()
	if err := d.Done(); err != nil {
		return 0, err
	}
	if n > Max {
		return 0, errs.Newf(errs.TooBig, "meta.bulk", "", "an answer of %d bytes, at most %d", n, Max)
	}
	return int(n), nil
}
