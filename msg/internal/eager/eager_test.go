package eager

import (
	"bytes"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/wire"
)

// TestHeldSlotsCarryOneRequestEach goes through the life of a client's slots.
func TestHeldSlotsCarryOneRequestEach(t *testing.T) {
	var h Held
	if slot, ask := h.Take(10); slot >= 0 || !ask {
		t.Fatal("a slot that nobody gave", slot, ask)
	}
	if _, ask := h.Take(10); ask {
		t.Fatal("it asks twice")
	}
	gifts := []Gift{{3, fabric.Remote{Len: 100}}, {5, fabric.Remote{Len: 100}}}
	if err := h.Given(gifts); err != nil {
		t.Fatal(err)
	}
	if err := h.Given(nil); errs.KindOf(err) != errs.Protocol {
		t.Fatal("slots that were not asked for", err)
	}
	a, _ := h.Take(100)
	if b, _ := h.Take(100); a != 3 || b != 5 {
		t.Fatal(a, b)
	}
	if c, ask := h.Take(1); c >= 0 || !ask {
		t.Fatal("a slot that has a request carries another one", c, ask)
	}
	h.Free(a)
	if set := h.GiveBack(); set != 1<<3 {
		t.Fatalf("%b", set)
	}
	if held, free := h.Sets(); held != 1<<5 || free != 0 {
		t.Fatalf("%b %b", held, free)
	}
	if err := h.Given([]Gift{{5, fabric.Remote{}}}); errs.KindOf(err) != errs.Protocol {
		t.Fatal("a slot that was given twice", err)
	}
}

func FuzzDecodeGifts(f *testing.F) {
	f.Add(make([]byte, giftBytes))
	f.Add(bytes.Repeat([]byte{0xff}, 2*giftBytes))
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, body []byte) {
		all, err := DecodeGifts(body)
		if err == nil && len(all)*giftBytes != len(body) {
			t.Fatalf("%d slots in %d bytes", len(all), len(body))
		}
		var e wire.Enc
		for _, g := range all {
			if g.Index < 0 || g.Index >= MaxSlots {
				t.Fatalf("slot %d", g.Index)
			}
			g.Append(&e)
		}
		if err == nil && !bytes.Equal(e.B, body) {
			t.Fatal("other bytes came back")
		}
	})
}
