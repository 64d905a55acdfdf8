package server

import (
	"context"
	"sync/atomic"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
)

// rights is the right that a request needs; have are those of its capability. A writer may also ask
// for an object's length: a client that only writes a file has to find out whether a truncation has
// removed what it had written.
func rights(op iod.Op, have capability.Rights) capability.Rights {
	switch op {
	case iod.OpStat:
		if have&capability.Write != 0 {
			return capability.Write
		}
		return capability.Read
	case iod.OpRead, iod.OpMap:
		return capability.Read
	case iod.OpWrite, iod.OpSync, iod.OpPunch, iod.OpReserve:
		return capability.Write
	default:
		return capability.Manage
	}
}

// refusals counts requests that were refused for their capability, by reason.
type refusals struct {
	forged   atomic.Uint64
	otherKey atomic.Uint64 // signed with a key that has ended, or that nobody has heard of yet
	why      [capability.RefusalsEnd]atomic.Uint64
}

// refusalNames are the names of the counters.
var refusalNames = [capability.RefusalsEnd]string{
	capability.OtherFile:    "capabilities_other_object",
	capability.OtherServer:  "capabilities_other_server",
	capability.OtherSession: "capabilities_other_session",
	capability.NotGranted:   "capabilities_not_granted",
	capability.OtherGen:     "capabilities_other_generation",
	capability.OtherEpoch:   "capabilities_other_writer",
	capability.OtherLayout:  "capabilities_other_layout",
	capability.RunOut:       "capabilities_expired",
	capability.LivesTooLong: "capabilities_too_long",
	capability.NotYet:       "capabilities_other_clock",
	capability.Gone:         "capabilities_lost_memory",
	capability.OtherLife:    "capabilities_other_life",
}

// unverified counts what could not be verified.
func (r *refusals) unverified(err error) {
	if errs.KindOf(err) == errs.Forged {
		r.forged.Add(1)
	} else {
		r.otherKey.Add(1)
	}
}

// total is how many were refused, except for forged capabilities.
func (r *refusals) total() (n uint64) {
	n = r.otherKey.Load()
	for i := range r.why {
		n += r.why[i].Load()
	}
	return n
}

// admit verifies the capability and that it covers exactly this request.
func (s *Server) admit(ctx context.Context, op iod.Op, t *iod.Target) error {
	cp, err := s.keys.Verify(t.Cap[:])
	if err != nil {
		s.count.refused.unverified(err)
		return err
	}
	need := capability.Need{File: t.Object.File, Gen: t.Object.Gen, Rights: rights(op, cp.Rights),
		Session: t.Stamp.Session, Server: s.cfg.ID, Layout: t.Layout,
		Life: s.cfg.Life, Epoch: t.Stamp.Epoch}
	if cp.Rights&capability.Manage != 0 {
		cp.Rights |= capability.Read | capability.Write
	}
	if why := cp.Covers(&need, s.cfg.Clock()); why != capability.Covered {
		s.count.refused.why[why].Add(1)
		return why.Err()
	}
	switch op {
	case iod.OpRemove: // fenced generations are removed too, perhaps more than once
		return nil
	case iod.OpList: // the object is only a place in the order, and may be gone
		return nil
	}
	if err := s.fences.check(t.Object); err != nil {
		return err
	}
	switch op {
	case iod.OpWrite, iod.OpPunch, iod.OpReserve:
		return s.writers.check(t)
	case iod.OpRead, iod.OpMap:
	default:
		return nil
	}
	return s.believe(ctx, t.Object, cp.Signed())
}
