package wire

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sluice-storage/sluice/errs"
	"pgregory.net/rapid"
)

func drawHeader(t *rapid.T) Header {
	h := Header{
		Kind:      Kind(rapid.IntRange(1, int(kindEnd)-1).Draw(t, "kind")),
		Op:        rapid.Uint16().Draw(t, "op"),
		Status:    errs.Kind(rapid.Uint16().Draw(t, "status")),
		RequestID: rapid.Uint64().Draw(t, "id"),
		Credits:   rapid.Uint16().Draw(t, "credits"),
		Stamp: Stamp{
			Session: rapid.Uint64().Draw(t, "session"), Slot: rapid.Uint16().Draw(t, "slot"),
			Seq: rapid.Uint32().Draw(t, "seq"), Epoch: rapid.Uint32().Draw(t, "epoch"),
			Gen: rapid.Uint32().Draw(t, "gen"), TruncSeq: rapid.Uint64().Draw(t, "trunc"),
		},
		DeadlineMs: rapid.Uint32().Draw(t, "deadline"),
		Pieces:     rapid.Uint32().Draw(t, "pieces"),
	}
	if h.Kind == KindReply {
		h.Map = rapid.Uint64().Draw(t, "map")
	}
	return h
}

func TestHeaderSurvivesTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHeader(t)
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		inline := rapid.SliceOf(rapid.Byte()).Draw(t, "inline")
		h.BodyLen, h.InlineLen = uint32(len(body)), uint32(len(inline))
		msg := append(append(h.Append(nil), body...), inline...)
		var got Header
		gotBody, gotInline, err := got.Parse(msg)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(h, got); d != "" {
			t.Fatal(d)
		}
		if !bytes.Equal(body, gotBody) || !bytes.Equal(inline, gotInline) {
			t.Fatal("body or inline data changed")
		}
		for cut := 0; cut < len(msg); cut++ {
			if _, _, err := new(Header).Parse(msg[:cut]); err == nil {
				t.Fatalf("a message cut to %d of %d bytes was accepted", cut, len(msg))
			}
		}
	})
}

func TestHeaderRefusals(t *testing.T) {
	good := (&Header{Kind: KindRequest}).Append(nil)
	for _, c := range []struct {
		name string
		at   int
		val  byte
		want errs.Kind
	}{
		{"magic", 0, 0, errs.Protocol},
		{"version", 2, 9, errs.Version},
		{"kind zero", 3, 0, errs.Protocol},
		{"kind unknown", 3, byte(kindEnd), errs.Protocol},
		{"body longer than message", 55, 1, errs.Protocol},
		{"reserved", 71, 1, errs.Protocol},
	} {
		msg := append([]byte(nil), good...)
		msg[c.at] = c.val
		_, _, err := new(Header).Parse(msg)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want kind %v", c.name, err, c.want)
		}
		if c.want == errs.Version && !strings.Contains(err.Error(), "this program is the older one") {
			t.Errorf("%s: %v does not say what to do", c.name, err)
		}
	}
}

func TestDecStopsAtTheFirstFailure(t *testing.T) {
	d := NewDec([]byte{1, 2, 3})
	if d.U8() != 1 || d.U32() != 0 || d.U8() != 0 || d.Done() == nil {
		t.Fatal("fields after a failure are not zero, or the failure is lost")
	}
	d = NewDec([]byte{1, 2})
	d.U8()
	if d.Done() == nil {
		t.Fatal("left-over bytes were accepted")
	}
	d = NewDec([]byte{0xff, 0xff, 0xff, 0xff})
	if d.Count(1<<30, 8) != 0 || d.Err() == nil {
		t.Fatal("a count that the message cannot hold was believed")
	}
}

func FuzzParseHeader(f *testing.F) {
	f.Add((&Header{Kind: KindRequest, BodyLen: 3}).Append(nil))
	f.Add(append((&Header{Kind: KindReply, BodyLen: 1, InlineLen: 2}).Append(nil), 1, 2, 3))
	f.Fuzz(func(t *testing.T, msg []byte) {
		var h Header
		body, inline, err := h.Parse(msg)
		if err != nil {
			return
		}
		again := append(append(h.Append(nil), body...), inline...)
		if !bytes.Equal(again, msg) {
			t.Fatal("an accepted message does not encode to itself")
		}
	})
}
