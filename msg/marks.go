package msg

import "github.com/sluice-storage/sluice/errs"

// The last field of a request's header (wire.Header.Pieces) is this layer's:
//
//	0      1      2  3         4
//	|flags |level |0 |segments |
//
// flags: 1 one-way, nobody waits for the answer, which has no body. level: the service level.
// segments: how many descriptions open the body. In a reply the field is 0.
type marks struct {
	flags, level, segments uint8
}

const markOneWay uint8 = 1

func (m marks) pack() uint32 {
	return uint32(m.flags)<<24 | uint32(m.level)<<16 | uint32(m.segments)
}

// parseMarks reads the field and refuses what it does not know.
func parseMarks(v uint32) (marks, error) {
	m := marks{flags: uint8(v >> 24), level: uint8(v >> 16), segments: uint8(v)}
	if m.flags&^markOneWay != 0 || m.level >= MaxLevels || uint8(v>>8) != 0 || m.segments > 2 {
		return m, errs.Newf(errs.Protocol, "msg.Describe", "", "unknown marks %08x of a request", v)
	}
	return m, nil
}
