package fabric

import (
	"context"
	"encoding/binary"
	"errors"
	"math/bits"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/plain"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/wire"
)

// What the peer does for one endpoint. The dialler tells it in its hello.
const (
	modeEcho   = 1 // answers every message with one of the same length
	modeSink   = 2 // takes messages, and says so after every sinkBatch
	modeMemory = 3 // opens its memory for writes and reads
	modeHeader = 4 // reads the header of every message, and answers with one
)

const (
	sendDepth = 128
	recvDepth = 64
	sinkBatch = recvDepth / 4 // the dialler may have recvDepth messages under way
	silent    = 32            // of so many sends one is signalled, so that the others make room

	// spin is how long a queue that polls does so before it sleeps: longer than any round trip.
	spin = 5 * time.Millisecond
)

// role is what an endpoint is for. It travels in the features of the hello:
//
//	bit 15        8      3      0
//	    |-----|size |spin |mode |    size as its power of two
type role struct {
	mode int
	spin bool
	size int // bytes of one message, or of the memory; a power of two
}

const sizeMax = 64 << 20

func (r role) features() uint16 {
	f := uint16(r.mode) | uint16(bits.TrailingZeros(uint(r.size)))<<8
	if r.spin {
		f |= 1 << 3
	}
	return f
}

func roleOf(features uint16) (role, error) {
	r := role{mode: int(features & 7), spin: features&8 != 0, size: 1 << (features >> 8 & 31)}
	if r.mode < modeEcho || r.mode > modeHeader || r.size > sizeMax || r.features() != features {
		return r, errs.Newf(errs.Invalid, "bench", "hello", "features %#x", features)
	}
	return r, nil
}

func (r role) cqOptions() fabric.CQOptions {
	o := fabric.CQOptions{Depth: sendDepth + recvDepth}
	if r.spin {
		o.Spin = spin
	}
	return o
}

// slots is how many receives are kept posted.
func (r role) slots() int {
	if r.mode == modeSink {
		return recvDepth
	}
	return 4
}

// end is one side of a measurement: an endpoint with a queue and memory of its own, all of it made
// in advance.
type end struct {
	undo  bench.Undo
	role  role
	arena *mem.Arena
	cq    fabric.CQ
	ep    fabric.Endpoint
	data  []byte // what is sent, written from or read into
	slots [][]byte
	got   []fabric.Completion
	wr    [1]fabric.WR
	recv  [1]fabric.Recv
	sent  int

	trips uint64 // modeHeader: so far
	body  []byte // behind the header
}

// GrantBytes is the length of the first message of a peer: a fabric.Remote.
const GrantBytes = 24

// newEnd makes everything but the endpoint. dataBytes is the size of data.
func newEnd(d fabric.Domain, r role, dataBytes int) (*end, error) {
	e := &end{role: r, got: make([]fabric.Completion, sendDepth+recvDepth)}
	slot := GrantBytes
	if r.mode != modeMemory {
		slot = max(slot, wire.HeaderBytes+r.size)
	}
	const align = 64
	bytes := dataBytes + r.slots()*(slot+align) + GrantBytes + 2*align
	var err error
	if e.arena, err = mem.NewArena(bytes, nil); err != nil {
		return nil, err
	}
	e.undo.Later(e.arena.Close)
	if err = e.arena.Attach(d); err == nil {
		e.data, err = e.arena.Cut(dataBytes, 1)
	}
	for range r.slots() {
		var b []byte
		if err == nil {
			b, err = e.arena.Cut(slot, align)
			e.slots = append(e.slots, b)
		}
	}
	if err == nil {
		e.cq, err = d.NewCQ(r.cqOptions())
	}
	if err != nil {
		return nil, errors.Join(err, e.undo.Close())
	}
	e.undo.Later(e.cq.Close)
	copy(e.data, plain.Touched(len(e.data)))
	e.body = make([]byte, r.size)
	return e, nil
}

func (e *end) config() fabric.EndpointConfig {
	return fabric.EndpointConfig{SendCQ: e.cq, RecvCQ: e.cq, SendDepth: sendDepth,
		RecvDepth: recvDepth, Hello: fabric.Hello{Features: e.role.features()}}
}

// start posts all receives, with one call: the peer may send as soon as there is one.
func (e *end) start(ep fabric.Endpoint) error {
	e.ep = ep
	e.undo.Later(ep.Close)
	all := make([]fabric.Recv, len(e.slots))
	for i := range e.slots {
		all[i] = fabric.Recv{Context: uint64(i), Reg: e.arena.Region(), Buf: e.slots[i]}
	}
	return ep.PostRecv(all)
}

// post posts one receive.
func (e *end) post(slot int) error {
	e.recv[0] = fabric.Recv{Context: uint64(slot), Reg: e.arena.Region(), Buf: e.slots[slot]}
	return e.ep.PostRecv(e.recv[:])
}

// send sends the first n bytes of data with a number. Most sends are silent.
func (e *end) send(n int, imm uint32, inline int) error {
	w := &e.wr[0]
	if w.Local == nil {
		w.Op, w.Local = fabric.OpSend, []fabric.Sge{{Reg: e.arena.Region()}}
	}
	w.Local[0].Buf, w.Imm, w.Flags = e.data[:n], imm, 0
	if n <= inline {
		w.Flags |= fabric.FlagInline
	}
	if e.sent++; e.sent%silent == 0 {
		w.Flags |= fabric.FlagSignaled
	}
	return e.ep.Post(e.wr[:])
}

// await waits for completions, of which there is at least one. It waits without a context, which
// providers do best: when a bench is given up its peer is ended, and so are the endpoints.
func (e *end) await() ([]fabric.Completion, error) {
	n, err := e.cq.Wait(context.Background(), e.got)
	if err != nil {
		return nil, err
	}
	for i := range e.got[:n] {
		if e.got[i].Err != nil {
			return nil, e.got[i].Err
		}
	}
	return e.got[:n], nil
}

// awaitMessages waits until at least one message was received, posts the receives again and returns
// how many there were, the length of the last and the sum of their numbers.
func (e *end) awaitMessages() (count, length int, sum uint32, err error) {
	for count == 0 {
		got, err := e.await()
		if err != nil {
			return 0, 0, 0, err
		}
		for i := range got {
			if got[i].Op != fabric.OpRecv {
				continue
			}
			count, length, sum = count+1, got[i].Len, sum+got[i].Imm
			if err := e.post(int(got[i].Context)); err != nil {
				return 0, 0, 0, err
			}
		}
	}
	return count, length, sum, nil
}

// PutRemote writes a grant as GrantBytes bytes.
func PutRemote(b []byte, r fabric.Remote) {
	binary.BigEndian.PutUint64(b, r.Key)
	binary.BigEndian.PutUint64(b[8:], r.Addr)
	binary.BigEndian.PutUint64(b[16:], r.Len)
}

// GetRemote reads it.
func GetRemote(b []byte) fabric.Remote {
	return fabric.Remote{Key: binary.BigEndian.Uint64(b), Addr: binary.BigEndian.Uint64(b[8:]),
		Len: binary.BigEndian.Uint64(b[16:])}
}
