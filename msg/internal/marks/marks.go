// Package marks is the last field of a request's header (wire.Header.Pieces), which is msg's own:
//
//	0      1      2  3         4
//	|flags |level |0 |segments |
//
// In a reply the field is 0.
package marks

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/gate"
)

// segmentsMax is one for data of the request and one for data of the reply.
const segmentsMax = 2

// OneWay is a flag: nobody waits for the answer, which has no body.
const OneWay uint8 = 1

// Marks of a request.
type Marks struct {
	Flags    uint8
	Level    uint8 // of service
	Segments uint8 // how many descriptions open the body
}

// Pack makes the field.
func (m Marks) Pack() uint32 {
	return uint32(m.Flags)<<24 | uint32(m.Level)<<16 | uint32(m.Segments)
}

// Parse reads the field and refuses what it does not know.
func Parse(v uint32) (Marks, error) {
	m := Marks{Flags: uint8(v >> 24), Level: uint8(v >> 16), Segments: uint8(v)}
	if m.Flags&^OneWay != 0 || m.Level >= gate.MaxLevels || uint8(v>>8) != 0 ||
		m.Segments > segmentsMax {
		return m, errs.Newf(errs.Protocol, "msg.Describe", "", "unknown marks %08x of a request", v)
	}
	return m, nil
}
