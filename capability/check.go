package capability

import (
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// Need is what a request asks of a capability.
type Need struct {
	File    uint64
	Gen     uint32
	Rights  Rights
	Session uint64
	Server  uint32
	Layout  uint32
	Life    uint32 // of the server; 0: its objects survive it
	Epoch   uint32 // that the request says its writer has
}

// Refusal is why a capability does not cover a need.
type Refusal uint8

// The refusals, in the order in which they are looked for.
const (
	Covered      Refusal = iota
	OtherFile            // given for another file
	OtherServer          // given for another I/O server
	OtherSession         // given to somebody else
	NotGranted           // the right is not in it
	OtherGen             // the file was fenced, or is another one by now
	OtherEpoch           // given to an earlier generation of writers than the request says
	OtherLayout          // the file's layout has changed
	RunOut               // its time is over
	LivesTooLong         // nobody signs such
	NotYet               // signed in the future: a clock was set, or two of them differ
	Gone                 // the objects were in memory that is gone
	OtherLife            // the server was started anew, or has been since this was signed
	RefusalsEnd          // how many there are
)

var refusals = [RefusalsEnd]struct {
	kind errs.Kind
	why  string
}{
	Covered:      {errs.OK, "covered"},
	OtherFile:    {errs.Perm, "for another file"},
	OtherServer:  {errs.Perm, "for another server"},
	OtherSession: {errs.Perm, "for another session"},
	NotGranted:   {errs.Perm, "right not granted"},
	OtherGen:     {errs.Stale, "file has another generation"},
	OtherEpoch:   {errs.Perm, "for an earlier generation of writers"},
	OtherLayout:  {errs.Stale, "file has another layout"},
	RunOut:       {errs.Expired, "run out; renew it at the metadata service"},
	LivesTooLong: {errs.Perm, "lives longer than allowed"},
	NotYet:       {errs.Expired, "signed by another clock; renew it at the metadata service"},
	Gone: {errs.IO, "the data was in the memory of a server that has been started anew since; " +
		"truncate the file to zero, or write it anew"},
	OtherLife: {errs.Stale, "the server was started anew and its memory is gone"},
}

// Err is the refusal as an error: errs.Expired when only its time is wrong (renew it), errs.Stale
// when generation or layout differ (open the file again), errs.Perm otherwise, nil for Covered.
func (r Refusal) Err() error {
	if r == Covered {
		return nil
	}
	return errs.Newf(refusals[r].kind, "capability.Check", "", "%s", refusals[r].why)
}

// Covers tells whether a verified capability covers the need at time now, or why it does not.
func (c *Capability) Covers(n *Need, now time.Time) Refusal {
	switch {
	case c.File != n.File:
		return OtherFile
	case c.Server != n.Server:
		return OtherServer
	case c.Session != n.Session:
		return OtherSession
	case c.Rights&n.Rights != n.Rights:
		return NotGranted
	case c.Gen != n.Gen:
		return OtherGen
	case c.Epoch < n.Epoch && c.Rights&Manage == 0:
		return OtherEpoch
	case c.Layout != n.Layout:
		return OtherLayout
	case !now.Before(c.Expiry):
		return RunOut
	case c.TTL > TTLMax:
		return LivesTooLong
	case c.Signed().Sub(now) > TTLMax:
		return NotYet
	case n.Life != 0 && c.Rights&Manage == 0 && c.Life == Lost:
		return Gone
	case n.Life != 0 && c.Rights&Manage == 0 && c.Life != n.Life:
		return OtherLife
	}
	return Covered
}

// Check is Covers as an error.
func (c *Capability) Check(n Need, now time.Time) error { return c.Covers(&n, now).Err() }
