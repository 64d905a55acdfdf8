package server

import (
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/wire"
)

func TestSlotsAreBusyOnce(t *testing.T) {
	var s slots
	st := stamp(7, 1, 1)
	if err := s.take("t", st); err != nil {
		t.Fatal(err)
	}
	if err := s.take("t", stamp(7, 1, 2)); errs.KindOf(err) != errs.Again {
		t.Errorf("two of one slot: %v", err)
	}
	if s.take("t", stamp(7, 2, 1)) != nil || s.take("t", stamp(0, 0, 0)) != nil {
		t.Error("another slot is busy too")
	}
	s.give(st)
	if err := s.take("t", st); err != nil {
		t.Error(err)
	}
}

func stamp(session uint64, slot uint16, seq uint32) wire.Stamp {
	return wire.Stamp{Session: session, Slot: slot, Seq: seq}
}
