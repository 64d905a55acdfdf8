package uring

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What is shared with the kernel, little-endian on every machine that we build for. A ring is
// three mappings: the submission ring, the completion ring, and the array of entries.
//
// Submission entry, 64 bytes (fields that we leave 0 are not named):
//
//	0       1      2         4    8       16       24    28       32         40      42
//	|opcode |flags |ioprio   |fd  |offset |address |len  |rwflags |user data |buf ix |...
//
// Completion entry, 16 bytes:
//
//	0          8       12      16
//	|user data |result |flags  |
//
// Head and tail of both rings are running numbers: an entry's place is the number modulo the
// ring's size. The kernel moves the submission ring's head and the completion ring's tail; we move
// the other two, after what they publish has been written.
type sqe struct {
	opcode   uint8
	flags    uint8
	ioprio   uint16
	fd       int32
	off      uint64
	addr     uint64
	len      uint32
	rwFlags  uint32
	userData uint64
	bufIndex uint16
	_        [22]byte
}

type cqe struct {
	userData uint64
	res      int32
	flags    uint32
}

// params is struct io_uring_params, 120 bytes: what we ask for and what we got.
type params struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFd uint32
	resv                                                                   [3]uint32
	sq                                                                     sqOffsets
	cq                                                                     cqOffsets
}

// sqOffsets says where in the submission ring's mapping the fields lie.
type sqOffsets struct {
	head, tail, ringMask, ringEntries, flags, dropped, array, resv1 uint32
	userAddr                                                        uint64
}

type cqOffsets struct {
	head, tail, ringMask, ringEntries, overflow, cqes, flags, resv1 uint32
	userAddr                                                        uint64
}

const (
	// The vectored forms exist since the first io_uring; fixed ones use registered memory.
	opReadv       = 1
	opWritev      = 2
	opFsync       = 3
	opReadFixed   = 4
	opWriteFixed  = 5
	opAsyncCancel = 14
	opRead        = 22

	sqeFixedFile = 1 << 0

	fsyncDatasync = 1 << 0

	setupCoopTaskrun  = 1 << 8
	setupSingleIssuer = 1 << 12
	setupDeferTaskrun = 1 << 13

	enterGetEvents = 1 << 0
	enterNoIowait  = 1 << 7

	featSingleMmap = 1 << 0
	featNoDrop     = 1 << 1
	featNoIowait   = 1 << 17 // since 6.15

	registerBuffers = 0
	registerFiles   = 2
	unregisterFiles = 3
	registerProbe   = 8

	offSqRing = 0
	offSqes   = 0x10000000

	rwfDsync = 0x2
)

// kernelRing is one io_uring. Only its thread uses it.
type kernelRing struct {
	fd       int
	features uint32
	ring     []byte // both rings in one mapping
	entries  []byte
	sqHead   *uint32
	sqTail   *uint32
	sqMask   uint32
	cqHead   *uint32
	cqTail   *uint32
	cqMask   uint32
	sqes     []sqe
	cqes     []cqe
	tail     uint32 // our copy of *sqTail, ahead of it until publish
	unsubmit uint32 // entries filled since the last enter
}

// probe is struct io_uring_probe with room for all opcodes.
type probe struct {
	lastOp, opsLen uint8
	_              uint16
	_              [3]uint32
	ops            [256]struct {
		op, _ uint8
		flags uint16
		_     uint32
	}
}

// setup makes a ring. Of the kernel's features that a ring can do without, it uses those in
// optional.
func setup(depth int, flags, optional uint32) (*kernelRing, error) {
	p := params{flags: flags}
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(depth),
		uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, errno
	}
	k := &kernelRing{fd: int(fd), features: p.features & optional}
	if p.features&featSingleMmap == 0 || p.features&featNoDrop == 0 {
		unix.Close(k.fd)
		return nil, unix.ENOSYS // before 5.5: too old to be worth a second way of mapping
	}
	if err := k.mapRings(&p); err != nil {
		k.close()
		return nil, err
	}
	return k, nil
}

func (k *kernelRing) mapRings(p *params) (err error) {
	size := max(int(p.sq.array)+int(p.sqEntries)*4,
		int(p.cq.cqes)+int(p.cqEntries)*int(unsafe.Sizeof(cqe{})))
	const prot, shared = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	if k.ring, err = unix.Mmap(k.fd, offSqRing, size, prot, shared); err != nil {
		return err
	}
	bytes := int(p.sqEntries) * int(unsafe.Sizeof(sqe{}))
	if k.entries, err = unix.Mmap(k.fd, offSqes, bytes, prot, shared); err != nil {
		return err
	}
	at := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&k.ring[off])) }
	k.sqHead, k.sqTail, k.sqMask = at(p.sq.head), at(p.sq.tail), *at(p.sq.ringMask)
	k.cqHead, k.cqTail, k.cqMask = at(p.cq.head), at(p.cq.tail), *at(p.cq.ringMask)
	k.sqes = unsafe.Slice((*sqe)(unsafe.Pointer(&k.entries[0])), p.sqEntries)
	k.cqes = unsafe.Slice((*cqe)(unsafe.Pointer(&k.ring[p.cq.cqes])), p.cqEntries)
	// The array between ring and entries stays the identity for ever.
	array := unsafe.Slice(at(p.sq.array), p.sqEntries)
	for i := range array {
		array[i] = uint32(i)
	}
	return nil
}

// close frees everything. Files are unregistered first: the kernel destroys a ring later, and would
// keep them, and locks on them, open until then.
func (k *kernelRing) close() {
	_ = k.register(unregisterFiles, nil, 0)
	if k.entries != nil {
		_ = unix.Munmap(k.entries)
	}
	if k.ring != nil {
		_ = unix.Munmap(k.ring)
	}
	_ = unix.Close(k.fd)
}

// next is a cleared submission entry, nil when the ring is full.
func (k *kernelRing) next() *sqe {
	if k.tail-atomic.LoadUint32(k.sqHead) > k.sqMask {
		return nil
	}
	e := &k.sqes[k.tail&k.sqMask]
	*e = sqe{}
	k.tail++
	k.unsubmit++
	return e
}

// enter publishes what was filled, submits it, and waits for that many completions. The flags are
// those besides enterGetEvents.
func (k *kernelRing) enter(wait, flags uint32) error {
	atomic.StoreUint32(k.sqTail, k.tail)
	var n uintptr
	var errno unix.Errno
	if wait == 0 {
		n, _, errno = unix.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(k.fd),
			uintptr(k.unsubmit), 0, enterGetEvents, 0, 0)
	} else {
		n, _, errno = unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(k.fd),
			uintptr(k.unsubmit), uintptr(wait), uintptr(enterGetEvents|flags), 0, 0)
	}
	if errno != 0 {
		return errno
	}
	k.unsubmit -= uint32(n)
	return nil
}

// enterIdle is enter(1) for a ring with nothing under way but the read of wake, an eventfd. The
// kernel takes every wait in a ring for a wait for a disk, unless it is told otherwise: a host with
// nothing to do would show nothing but iowait. Where the kernel cannot be told, poll waits, which
// does not count. It watches both: since 6.1 the read is finished by our next enter, and the
// eventfd is readable until then; before that it is finished at once, and the ring is readable.
func (k *kernelRing) enterIdle(wake int) error {
	if k.features&featNoIowait != 0 {
		return k.enter(1, enterNoIowait)
	}
	if err := k.enter(0, 0); err != nil {
		return err
	}
	fds := [2]unix.PollFd{
		{Fd: int32(k.fd), Events: unix.POLLIN}, {Fd: int32(wake), Events: unix.POLLIN},
	}
	if _, err := unix.Poll(fds[:], -1); err != nil {
		return err
	}
	return k.enter(0, 0)
}

// reap takes one completion.
func (k *kernelRing) reap() (userData uint64, res int32, ok bool) {
	head := *k.cqHead
	if head == atomic.LoadUint32(k.cqTail) {
		return 0, 0, false
	}
	c := k.cqes[head&k.cqMask]
	atomic.StoreUint32(k.cqHead, head+1)
	return c.userData, c.res, true
}

func (k *kernelRing) register(op uintptr, arg unsafe.Pointer, n int) error {
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(k.fd), op, uintptr(arg),
		uintptr(n), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// knows asks whether the kernel has all of the operations.
func (k *kernelRing) knows(ops ...uint8) bool {
	var p probe
	if err := k.register(registerProbe, unsafe.Pointer(&p), len(p.ops)); err != nil {
		return false
	}
	for _, op := range ops {
		if int(op) >= int(p.opsLen) || p.ops[op].flags&1 == 0 {
			return false
		}
	}
	return true
}

func (k *kernelRing) registerFiles(fds []int) error {
	list := make([]int32, len(fds))
	for i, fd := range fds {
		list[i] = int32(fd)
	}
	return k.register(registerFiles, unsafe.Pointer(&list[0]), len(list))
}

func (k *kernelRing) registerMemory(mem [][]byte) error {
	list := make([]unix.Iovec, len(mem))
	for i, m := range mem {
		list[i].Base = unsafe.SliceData(m)
		list[i].SetLen(len(m))
	}
	return k.register(registerBuffers, unsafe.Pointer(&list[0]), len(list))
}

// vector is the list of pieces of one operation that the kernel reads. It lives in the Op, which
// the thread holds until the completion, so that the memory stays where it is.
type vector struct {
	list []unix.Iovec
	few  [4]unix.Iovec
}

// pieces is how many buffers the kernel takes in one call.
const pieces = 1024

// load describes the bytes of bufs behind the first skip ones.
func (v *vector) load(bufs [][]byte, skip int) {
	if v.list == nil {
		v.list = v.few[:0]
	}
	v.list = v.list[:0]
	for _, b := range bufs {
		if skip >= len(b) {
			skip -= len(b)
			continue
		}
		b = b[skip:]
		skip = 0
		var iov unix.Iovec
		iov.Base = unsafe.SliceData(b)
		iov.SetLen(len(b))
		if v.list = append(v.list, iov); len(v.list) == pieces {
			return
		}
	}
}

// fill writes the submission entry of an operation whose vector is loaded.
func (e *sqe) fill(op *Op, fixed int, id uint64) {
	e.fd, e.flags, e.userData = int32(op.File), sqeFixedFile, id
	if op.Kind == Sync {
		e.opcode, e.rwFlags = opFsync, fsyncDatasync
		return
	}
	e.off = ^uint64(0)
	if op.Off >= 0 {
		e.off = uint64(op.Off) + uint64(op.N)
	}
	if op.Kind == Write && op.Stable {
		e.rwFlags = rwfDsync
	}
	v := op.io.list
	if fixed >= 0 && len(v) == 1 {
		e.opcode = opReadFixed
		e.addr, e.len = uint64(uintptr(unsafe.Pointer(v[0].Base))), uint32(v[0].Len)
		e.bufIndex = uint16(fixed)
	} else {
		e.opcode = opReadv
		e.addr, e.len = uint64(uintptr(unsafe.Pointer(&v[0]))), uint32(len(v))
	}
	if op.Kind == Write {
		e.opcode++ // of both forms the write follows the read
	}
}

// fixedIndex finds the registered memory that holds the operation's only piece, or -1.
func fixedIndex(mem [][]byte, v []unix.Iovec) int {
	if len(v) != 1 {
		return -1
	}
	lo := uintptr(unsafe.Pointer(v[0].Base))
	for i, m := range mem {
		base := uintptr(unsafe.Pointer(unsafe.SliceData(m)))
		if lo >= base && lo+uintptr(v[0].Len) <= base+uintptr(len(m)) {
			return i
		}
	}
	return -1
}

// fillWake reads the eventfd that wakes the thread.
func (e *sqe) fillWake(fd int, word *uint64, id uint64) {
	e.opcode, e.fd, e.userData = opRead, int32(fd), id
	e.addr, e.len = uint64(uintptr(unsafe.Pointer(word))), 8
}

// fillCancel asks the kernel to cancel an operation.
func (e *sqe) fillCancel(target, id uint64) {
	e.opcode, e.fd, e.userData, e.addr = opAsyncCancel, -1, id, target
}

// plainMove makes one plain call for an operation whose vector is loaded.
func plainMove(op *Op, fd int) (int, error) {
	nr := uintptr(unix.SYS_PREADV2)
	flags := uintptr(0)
	if op.Kind == Write {
		nr = unix.SYS_PWRITEV2
		if op.Stable {
			flags = rwfDsync
		}
	}
	off := int64(-1)
	if op.Off >= 0 {
		off = op.Off + int64(op.N)
	}
	v := op.io.list
	n, _, errno := unix.Syscall6(nr, uintptr(fd), uintptr(unsafe.Pointer(&v[0])),
		uintptr(len(v)), uintptr(off), uintptr(uint64(off)>>32), flags)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
