package meta

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/wire"
)

// The fields of Locks on the wire.

// What one lock and one event take.
const (
	lockBytes  = 8 + 8 + 1 + 1 + 8 + 8 + 4
	eventBytes = 16 + 2
)

var (
	argLock      = one(func(a *Args) *Lock { return &a.Lock }, encLock, decLock)
	argMode      = u8(func(a *Args) *LockMode { return &a.Mode })
	argMore      = flag(func(a *Args) *bool { return &a.More })
	argLockLife  = u64(func(a *Args) *uint64 { return &a.LockLife })
	argLockAfter = u64(func(a *Args) *uint64 { return &a.LockAfter })
	argLocks     = many(func(a *Args) *[]Lock { return &a.Locks }, LockClaimMax, lockBytes, encLock,
		decLock)
	argWaitMs = one(func(a *Args) *uint32 { return &a.WaitMs },
		func(e *wire.Enc, v *uint32) { e.U32(*v) }, func(d *wire.Dec, v *uint32) { *v = d.U32() })

	resState = u8(func(r *Result) *LockState { return &r.State })
	resLock  = one(func(r *Result) *Lock { return &r.Lock }, encLock, decLock)
	resHeld  = flag(func(r *Result) *bool { return &r.Held })
	resLocks = many(func(r *Result) *[]Lock { return &r.Locks }, LockClaimMax, lockBytes, encLock,
		decLock)
)

// encLock: |ino u64 |owner u64 |kind u8 |type u8 |start i64 |end i64 |pid u32 |.
func encLock(e *wire.Enc, l *Lock) {
	e.U64(uint64(l.Ino))
	e.U64(l.Owner)
	e.U8(uint8(l.Kind))
	e.U8(uint8(l.Type))
	e.I64(l.Start)
	e.I64(l.End)
	e.U32(l.PID)
}

func decLock(d *wire.Dec, l *Lock) {
	l.Ino = Ino(d.U64())
	l.Owner = d.U64()
	l.Kind = LockKind(d.U8())
	l.Type = LockType(d.U8())
	l.Start = d.I64()
	l.End = d.I64()
	l.PID = d.U32()
}

// resNews is |life u64 |next u64 |count u32 |count x (|request id 16 |kind u16 |) |.
var resNews = one(func(r *Result) *LockNews { return &r.News },
	func(e *wire.Enc, n *LockNews) {
		e.U64(n.Life)
		e.U64(n.Next)
		e.U32(uint32(len(n.Events)))
		for i := range n.Events {
			e.Raw(n.Events[i].ID[:])
			e.U16(uint16(n.Events[i].Kind))
		}
	},
	func(d *wire.Dec, n *LockNews) {
		n.Life, n.Next, n.Events = d.U64(), d.U64(), nil
		for range d.Count(LockEventMax, eventBytes) {
			var v LockEvent
			copy(v.ID[:], d.Raw(len(v.ID)))
			v.Kind = errs.Kind(d.U16())
			n.Events = append(n.Events, v)
		}
	})
