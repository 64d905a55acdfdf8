//go:build cgo && linux && (amd64 || arm64)

package verbs

/*
#cgo noescape vb_post_send
#cgo nocallback vb_post_send
#cgo noescape vb_post_recv
#cgo nocallback vb_post_recv
#cgo noescape vb_cq_poll
#cgo nocallback vb_cq_poll
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/invariant"
)

// Numbers of the ABI that files without cgo use.
const (
	accessLocal       = C.VB_ACCESS_LOCAL_WRITE
	accessRemoteWrite = C.VB_ACCESS_REMOTE_WRITE
	accessRemoteRead  = C.VB_ACCESS_REMOTE_READ
	accessBind        = C.VB_ACCESS_MW_BIND

	wcFlushed   = C.VB_WC_FLUSH_ERR
	wcLocLen    = C.VB_WC_LOC_LEN_ERR
	wcLocalOp   = C.VB_WC_LOC_QP_OP_ERR
	wcInvalid   = C.VB_WC_REM_INV_REQ_ERR
	wcAccess    = C.VB_WC_REM_ACCESS_ERR
	wcRemoteOp  = C.VB_WC_REM_OP_ERR
	wcNoAnswer  = C.VB_WC_RETRY_EXC_ERR
	wcNoReceive = C.VB_WC_RNR_RETRY_EXC_ERR

	eventCQErr       = C.VB_EVENT_CQ_ERR
	eventQPFatal     = C.VB_EVENT_QP_FATAL
	eventQPRequest   = C.VB_EVENT_QP_REQ_ERR
	eventQPAccess    = C.VB_EVENT_QP_ACCESS_ERR
	eventDeviceFatal = C.VB_EVENT_DEVICE_FATAL
	eventPortErr     = C.VB_EVENT_PORT_ERR

	cmAddrResolved    = C.VB_CM_ADDR_RESOLVED
	cmRouteResolved   = C.VB_CM_ROUTE_RESOLVED
	cmConnectRequest  = C.VB_CM_CONNECT_REQUEST
	cmConnectResponse = C.VB_CM_CONNECT_RESPONSE
	cmRejected        = C.VB_CM_REJECTED
	cmEstablished     = C.VB_CM_ESTABLISHED
	cmDisconnected    = C.VB_CM_DISCONNECTED
	cmDeviceRemoval   = C.VB_CM_DEVICE_REMOVAL
	cmTimewaitExit    = C.VB_CM_TIMEWAIT_EXIT

	maxDevices = C.VB_MAX_DEVICES
)

// stage is where a chain is built, in C memory, so that posting it is one call. It grows to the
// longest chain and is kept.
type stage struct {
	wrs    []C.vb_send_wr
	sges   []C.vb_sge
	n      int
	pieces int
	inline []unsafe.Pointer // copies of inline data of requests that wait
}

// add appends a request without its number and returns how many bytes it moves. Pieces of no bytes
// are left out: to some devices they mean 2 GiB. With keep, inline data is copied now, because the
// chain is not posted at once.
func (s *stage) add(wr *fabric.WR, dev *device, signaled, keep bool) (length int) {
	s.reserve(len(wr.Local))
	out := &s.wrs[s.n]
	*out = C.vb_send_wr{opcode: opcode(wr)}
	if signaled {
		out.send_flags |= C.VB_SEND_SIGNALED
	}
	if wr.Flags&fabric.FlagSolicited != 0 {
		out.send_flags |= C.VB_SEND_SOLICITED
	}
	if wr.Flags&fabric.FlagFence != 0 {
		out.send_flags |= C.VB_SEND_FENCE
	}
	out.imm_data = C.uint32_t(bits.ReverseBytes32(wr.Imm))
	out.remote_addr = C.uint64_t(wr.Remote.Addr)
	out.rkey = C.uint32_t(wr.Remote.Key)
	first := s.pieces
	for i := range wr.Local {
		if piece := &wr.Local[i]; len(piece.Buf) > 0 {
			s.sges[s.pieces] = C.vb_sge{
				addr:   C.uint64_t(addrOf(piece.Buf)),
				length: C.uint32_t(len(piece.Buf)),
				lkey:   C.uint32_t(piece.Reg.(*region).lkeys[dev.index]),
			}
			s.pieces++
			length += len(piece.Buf)
		}
	}
	if wr.Flags&fabric.FlagInline != 0 && s.pieces > first {
		out.send_flags |= C.VB_SEND_INLINE
		if keep {
			s.keepInline(first, wr)
		}
	}
	out.num_sge = C.int(s.pieces - first)
	s.n++
	return length
}

func opcode(wr *fabric.WR) C.int {
	switch wr.Op {
	case fabric.OpWrite:
		return C.VB_WR_WRITE
	case fabric.OpWriteImm:
		return C.VB_WR_WRITE_IMM
	case fabric.OpRead:
		return C.VB_WR_READ
	}
	if wr.Imm != 0 {
		return C.VB_WR_SEND_IMM
	}
	return C.VB_WR_SEND
}

// keepInline replaces the pieces from first on by one copy.
func (s *stage) keepInline(first int, wr *fabric.WR) {
	size := wr.Len()
	p := C.malloc(C.size_t(size))
	at := unsafe.Slice((*byte)(p), size)
	for i := range wr.Local {
		at = at[copy(at, wr.Local[i].Buf):]
	}
	s.inline = append(s.inline, p)
	s.sges[first] = C.vb_sge{addr: C.uint64_t(uintptr(p)), length: C.uint32_t(size)}
	s.pieces = first + 1
}

// reserve makes room for one more request with its pieces.
func (s *stage) reserve(pieces int) {
	if s.n == len(s.wrs) {
		s.wrs = grow(s.wrs, s.n, 2*s.n+16)
	}
	if s.pieces+pieces > len(s.sges) {
		s.sges = grow(s.sges, s.pieces, 2*(s.pieces+pieces)+16)
	}
}

// grow moves C memory to a larger place.
func grow[T any](old []T, used, size int) []T {
	var zero T
	p := C.calloc(C.size_t(size), C.size_t(unsafe.Sizeof(zero)))
	next := unsafe.Slice((*T)(p), size)
	copy(next, old[:used])
	release(old)
	return next
}

// number and first are the addresses of C memory, for calls that are made often.
func number[T any](p *T) C.uintptr_t { return C.uintptr_t(uintptr(unsafe.Pointer(p))) }

func first[T any](mem []T) C.uintptr_t { return number(unsafe.SliceData(mem)) }

func release[T any](mem []T) {
	if mem != nil {
		C.free(unsafe.Pointer(unsafe.SliceData(mem)))
	}
}

// number gives request i the number by which its completion tells it.
func (s *stage) number(i int, id uint64) { s.wrs[i].wr_id = C.uint64_t(id) }

// post posts the chain to the device, in one call, and empties the stage.
func (s *stage) post(qp *cQP) error {
	rc := C.vb_post_send(number(qp), first(s.wrs), first(s.sges), C.int(s.n))
	s.reset()
	return fail(rc)
}

func (s *stage) reset() {
	for _, p := range s.inline {
		C.free(p)
	}
	s.n, s.pieces, s.inline = 0, 0, s.inline[:0]
}

func (s *stage) free() {
	s.reset()
	release(s.wrs)
	release(s.sges)
	s.wrs, s.sges = nil, nil
}

// recvStage is stage for receives.
type recvStage struct {
	wrs  []C.vb_recv_wr
	sges []C.vb_sge
	n    int
}

func (s *recvStage) add(r *fabric.Recv, id uint64, dev *device) {
	if s.n == len(s.wrs) {
		s.wrs = grow(s.wrs, s.n, 2*s.n+16)
		s.sges = grow(s.sges, s.n, 2*s.n+16)
	}
	s.wrs[s.n] = C.vb_recv_wr{wr_id: C.uint64_t(id)}
	if len(r.Buf) > 0 {
		s.wrs[s.n].num_sge = 1
		s.sges[s.n] = C.vb_sge{
			addr:   C.uint64_t(addrOf(r.Buf)),
			length: C.uint32_t(len(r.Buf)),
			lkey:   C.uint32_t(r.Reg.(*region).lkeys[dev.index]),
		}
	}
	s.n++
}

func (s *recvStage) post(qp *cQP) error {
	rc := C.vb_post_recv(number(qp), first(s.wrs), first(s.sges), C.int(s.n))
	s.n = 0
	return fail(rc)
}

func (s *recvStage) free() {
	release(s.wrs)
	release(s.sges)
	s.wrs, s.sges, s.n = nil, nil, 0
}

func newQP(pd *cPD, send, recv *cCQ, sends, recvs, sge, inline int) (*cQP, error) {
	var qp *cQP
	size := C.vb_qp_size{
		send_wr: C.uint32_t(sends), recv_wr: C.uint32_t(recvs),
		send_sge: C.uint32_t(sge), inline_bytes: C.uint32_t(inline),
	}
	return qp, fail(C.vb_qp_new(pd, send, recv, &size, &qp))
}

func qpNumber(qp *cQP) uint32       { return uint32(qp.qp_num) }
func initQP(id *cID, qp *cQP) error { return fail(C.vb_qp_init(id, qp)) }
func failQP(qp *cQP)                { C.vb_qp_fail(qp) }
func freeQP(qp *cQP)                { C.vb_qp_free(qp) }

// postLastRecv posts the receive that marks the end of all others.
func postLastRecv(qp *cQP, id uint64) error { return fail(C.vb_post_last_recv(qp, C.uint64_t(id))) }

// postNothing posts a Write of no bytes, which the peer's device acknowledges.
func postNothing(qp *cQP, id uint64) error { return fail(C.vb_post_nothing(qp, C.uint64_t(id))) }

// readyQP moves a queue pair to where it can send.
func readyQP(id *cID, qp *cQP, readsIn, readsOut, timeout int) error {
	return fail(C.vb_qp_ready(id, qp, C.int(readsIn), C.int(readsOut), C.int(timeout), ackRetries))
}

func postBind(qp *cQP, id uint64, mw *cMW, key uint32, mr *cMR, mem []byte, access int) error {
	return fail(C.vb_post_bind(qp, C.uint64_t(id), mw, C.uint32_t(key), mr,
		C.uint64_t(addrOf(mem)), C.uint64_t(len(mem)), C.int(access)))
}

func postInvalidate(qp *cQP, id uint64, key uint32) error {
	return fail(C.vb_post_invalidate(qp, C.uint64_t(id), C.uint32_t(key)))
}

// postWrite writes size bytes at from, an address of mr, to the peer's address 0 of key.
func postWrite(qp *cQP, id uint64, mr *cMR, from uint64, size int, key uint32) error {
	return fail(C.vb_post_write(qp, C.uint64_t(id), C.uint64_t(from), mr.lkey, C.uint32_t(size), 0,
		C.uint32_t(key)))
}

// word reads 8 bytes that a device may be writing.
func word(mem []byte) uint64 {
	invariant.Check(len(mem) >= 8, "verbs: a gate word has 8 bytes")
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(unsafe.SliceData(mem))))
}

// poller is the device side of a completion queue, in C memory: the queues that one poll looks at,
// and the completions that it takes.
type poller struct {
	set *C.vb_cqset
	wcs []C.vb_wc
}

// batch is how many completions one poll takes at most.
const batch = 64

func newPoller() poller {
	return poller{
		set: (*C.vb_cqset)(C.calloc(1, C.sizeof_vb_cqset)),
		wcs: grow[C.vb_wc](nil, 0, batch),
	}
}

func (p *poller) free() {
	C.free(unsafe.Pointer(p.set))
	release(p.wcs)
	p.set, p.wcs = nil, nil
}

func (p *poller) attach(cq *cCQ) {
	p.set.cq[p.set.count] = cq
	p.set.count++
}

func (p *poller) detach(cq *cCQ) {
	if p.set == nil {
		return
	}
	for i := range p.set.count {
		if p.set.cq[i] == cq {
			p.set.count--
			p.set.cq[i], p.set.next = p.set.cq[p.set.count], 0
			return
		}
	}
}

// detachAll makes poll and arm find nothing from now on.
func (p *poller) detachAll() {
	if p.set != nil {
		p.set.count, p.set.next = 0, 0
	}
}

// poll takes up to limit completions from the devices, in one call. While there are none it looks
// up to looks times.
func (p *poller) poll(limit, looks int) []C.vb_wc {
	if p.set == nil || p.set.count == 0 {
		return nil
	}
	n := C.vb_cq_poll(number(p.set), C.int(min(limit, batch)), C.int(looks), first(p.wcs))
	return p.wcs[:max(n, 0)] // a broken queue shows in its device's fatal event
}

// arm asks for an event at the next completion, or at the next solicited one or failure. A device
// that fails to is gone, which its asynchronous event tells.
func (p *poller) arm(solicited bool) {
	if p.set == nil || p.set.count == 0 {
		return
	}
	only := C.int(0)
	if solicited {
		only = 1
	}
	C.vb_cq_arm(p.set, only)
}

func newCompletionQueue(ctx *cContext, entries int) (*cCQ, int, error) {
	var (
		cq *cCQ
		fd C.int
	)
	err := fail(C.vb_cq_new(ctx, C.int(entries), &cq, &fd))
	return cq, int(fd), err
}

func freeCompletionQueue(cq *cCQ) error { return fail(C.vb_cq_free(cq)) }
func takeCQEvents(cq *cCQ) bool         { return C.vb_cq_event(cq) > 0 }

// done is a device's completion.
type done struct {
	id      uint64
	status  int
	length  int
	imm     uint32
	withImm bool
}

func read(wc *cWC) done {
	d := done{
		id: uint64(wc.wr_id), status: int(wc.status), length: int(wc.byte_len),
		withImm: wc.opcode == C.VB_WC_RECV_IMM,
	}
	if wc.wc_flags&C.VB_WC_WITH_IMM != 0 {
		d.imm = bits.ReverseBytes32(uint32(wc.imm_data))
	}
	return d
}
