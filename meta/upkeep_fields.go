package meta

import (
	"bytes"

	"github.com/sluice-storage/sluice/wire"
)

// Bounds of the parts of a check's answer.
const (
	textMax    = 1 << 10
	findingMin = 4 + 1 + 8 + 8 + 4 + 4 + 4
	stageMax   = 64
)

var (
	argView  = u64(func(a *Args) *uint64 { return &a.View })
	argAfter = one(func(a *Args) *[]byte { return &a.After },
		func(e *wire.Enc, v *[]byte) { e.Bytes(*v) },
		func(d *wire.Dec, v *[]byte) { *v = d.Bytes(DumpKeyMax) })
)

// argStep is |run u64 |step u64 |repair u8 |max u32 |.
var argStep = one(func(a *Args) *CheckStep { return &a.Step },
	func(e *wire.Enc, s *CheckStep) {
		e.U64(s.Run)
		e.U64(s.Step)
		e.Bool(s.Repair)
		e.U32(s.Max)
	},
	func(d *wire.Dec, s *CheckStep) {
		s.Run = d.U64()
		s.Step = d.U64()
		s.Repair = d.Bool()
		s.Max = d.U32()
	})

// resCheck is |stage |stages u32 |at u32 |looked u64 |end u8 |count u32 |count x finding |, and a
// finding |kind |state u8 |ino u64 |dir u64 |name |server u32 |text |.
var resCheck = one(func(r *Result) *CheckPage { return &r.Check },
	func(e *wire.Enc, p *CheckPage) {
		e.String(p.Stage)
		e.U32(p.Stages)
		e.U32(p.At)
		e.U64(p.Looked)
		e.Bool(p.End)
		e.U32(uint32(len(p.Findings)))
		for i := range p.Findings {
			encFinding(e, &p.Findings[i])
		}
	},
	func(d *wire.Dec, p *CheckPage) {
		p.Stage = d.String(stageMax)
		p.Stages = d.U32()
		p.At = d.U32()
		p.Looked = d.U64()
		p.End = d.Bool()
		if n := d.Count(FindingsMax, findingMin); n > 0 {
			p.Findings = make([]Finding, n)
		}
		for i := range p.Findings {
			decFinding(d, &p.Findings[i])
		}
	})

func encFinding(e *wire.Enc, f *Finding) {
	e.String(string(f.Kind))
	e.U8(uint8(f.State))
	e.U64(uint64(f.Ino))
	e.U64(uint64(f.Dir))
	e.String(f.Name)
	e.U32(f.Server)
	e.String(f.Text[:min(len(f.Text), textMax)])
}

func decFinding(d *wire.Dec, f *Finding) {
	f.Kind = FindingKind(d.String(stageMax))
	f.State = FindingState(d.U8())
	f.Ino = Ino(d.U64())
	f.Dir = Ino(d.U64())
	f.Name = d.String(NameMax)
	f.Server = d.U32()
	f.Text = d.String(textMax)
}

// resDump is |count u64 |end u8 |version u64 |last |records |, the latter two with their lengths.
var resDump = one(func(r *Result) *DumpPage { return &r.Dump },
	func(e *wire.Enc, p *DumpPage) {
		e.U64(p.Count)
		e.Bool(p.End)
		e.U64(p.Version)
		e.Bytes(p.Last)
		e.Bytes(p.Records)
	},
	func(d *wire.Dec, p *DumpPage) {
		p.Count = d.U64()
		p.End = d.Bool()
		p.Version = d.U64()
		p.Last = bytes.Clone(d.Bytes(DumpKeyMax))
		p.Records = bytes.Clone(d.Bytes(DumpPageMax))
	})
