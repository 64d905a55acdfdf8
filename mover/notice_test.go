package mover

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

func TestNoticeSurvivesTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lengths := rapid.SliceOfN(rapid.Uint64Max(1<<40), 0, 20).Draw(t, "lengths")
		packed := rapid.Bool().Draw(t, "packed")
		tag := rapid.Uint32Max(MaxTag).Draw(t, "tag")
		total := uint64(0)
		for _, n := range lengths {
			total += n
		}
		msg := appendNotice(nil, packed, tag, total, lengths)
		if len(msg) != noticeBytes(len(lengths)) {
			t.Fatal(len(msg))
		}
		r, err := ParseNotice(msg, len(lengths))
		if err != nil || r.Packed != packed || r.Tag != tag || r.Total != total {
			t.Fatalf("%+v, %v", r, err)
		}
		for i := range r.Count() {
			if r.Length(i) != lengths[i] {
				t.Fatal(i)
			}
		}
	})
}

func TestNoticeRefusals(t *testing.T) {
	good := func() []byte { return appendNotice(nil, true, 5, 30, []uint64{10, 20}) }
	if _, err := ParseNotice(good(), 2); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(b []byte) []byte
		want   errs.Kind
	}{
		"empty":        {func([]byte) []byte { return nil }, errs.Protocol},
		"short":        {func(b []byte) []byte { return b[:23] }, errs.Protocol},
		"magic":        {func(b []byte) []byte { b[0]++; return b }, errs.Protocol},
		"version":      {func(b []byte) []byte { b[2]++; return b }, errs.Version},
		"kind":         {func(b []byte) []byte { b[3] = 3; return b }, errs.Protocol},
		"tag":          {func(b []byte) []byte { b[4] = 0x80; return b }, errs.Protocol},
		"reserved":     {func(b []byte) []byte { b[23] = 1; return b }, errs.Protocol},
		"count beyond": {func(b []byte) []byte { b[19] = 3; return append(b, b[:8]...) }, errs.Protocol},
		"count huge":   {func(b []byte) []byte { b[16] = 0xff; return b }, errs.Protocol},
		"cut":          {func(b []byte) []byte { return b[:len(b)-1] }, errs.Protocol},
		"longer":       {func(b []byte) []byte { return append(b, 0) }, errs.Protocol},
		"sum less":     {func(b []byte) []byte { b[15]++; return b }, errs.Protocol},
		"sum more":     {func(b []byte) []byte { b[39]++; return b }, errs.Protocol},
		"sum wraps": {func(b []byte) []byte {
			binary.BigEndian.PutUint64(b[24:], 1<<63)
			binary.BigEndian.PutUint64(b[32:], 1<<63+30)
			return b
		}, errs.Protocol},
	} {
		if _, err := ParseNotice(c.change(good()), 2); errs.KindOf(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzNotice(f *testing.F) {
	f.Add([]byte{}, 0)
	f.Add(appendNotice(nil, false, 0, 0, nil), 0)
	f.Add(appendNotice(nil, true, MaxTag, 30, []uint64{10, 20}), 2)
	f.Add(appendNotice(nil, true, 1, 30, []uint64{10, 20}), 1)
	f.Add(appendNotice(nil, true, 7, 12, []uint64{0, 12, 0}), 3)
	f.Fuzz(func(t *testing.T, msg []byte, limit int) {
		limit = min(max(limit, 0), 64)
		before := bytes.Clone(msg)
		r, err := ParseNotice(msg, limit)
		if !bytes.Equal(before, msg) {
			t.Fatal("the message was changed")
		}
		if err == nil {
			var lengths []uint64
			for i := range r.Count() {
				lengths = append(lengths, r.Length(i))
			}
			if again := appendNotice(nil, r.Packed, r.Tag, r.Total, lengths); !bytes.Equal(again, msg) {
				t.Fatalf("%x reads as %x", msg, again)
			}
			if r.Count() > limit {
				t.Fatal("more lengths than allowed")
			}
		}
		r, _ = ParseNotice(msg, 3)
		// Whatever comes, the unpacker writes its own pieces only, and only the right amount.
		area := bytes.Repeat([]byte{0xaa}, 40)
		slot := bytes.Repeat([]byte{0xbb}, 16)
		u := NewUnpacker(slot)
		if err := u.Expect(7, [][]byte{area[4:4], area[10:22], area[30:30]}); err != nil {
			t.Fatal(err)
		}
		err = u.Message(msg)
		clean := bytes.Count(area, []byte{0xaa})
		switch {
		case err == nil && r.Packed && clean != 28, (err != nil || !r.Packed) && clean != 40:
			t.Fatalf("%d bytes were left alone; %v", clean, err)
		case err == nil && (r.Tag != 7 || r.Total != 12):
			t.Fatal("another move was taken for the one expected")
		}
	})
}

func TestUnpackerChecks(t *testing.T) {
	slot := []byte("0123456789")
	area := make([]byte, 9)
	pieces := [][]byte{area[0:2], area[2:2], area[4:7]}
	u := NewUnpacker(slot)
	refuse := func(what string, err error) {
		t.Helper()
		if errs.KindOf(err) != errs.Protocol || !bytes.Equal(area, make([]byte, 9)) {
			t.Errorf("%s: %v, %q", what, err, area)
		}
	}
	message := func(packed bool, tag uint32, total uint64, lengths ...uint64) error {
		return u.Message(appendNotice(nil, packed, tag, total, lengths))
	}
	refuse("nothing is expected", u.Imm(imm(0, true)))
	refuse("nothing is expected", message(true, 0, 0))
	if err := u.Expect(MaxTag+1, nil); errs.KindOf(err) != errs.Invalid {
		t.Error(err)
	}
	if err := u.Expect(3, pieces); err != nil {
		t.Fatal(err)
	}
	if err := u.Expect(4, nil); errs.KindOf(err) != errs.Busy {
		t.Error(err)
	}
	refuse("another tag", u.Imm(imm(4, true)))
	refuse("another tag", message(true, 4, 5))
	refuse("longer", message(true, 3, 6))
	refuse("shorter", message(true, 3, 4))
	refuse("fewer segments", message(true, 3, 5, 2, 3))
	refuse("more segments", message(true, 3, 5, 2, 0, 3, 0))
	refuse("other lengths", message(true, 3, 5, 3, 0, 2))
	if err := message(true, 3, 5, 2, 0, 3); err != nil || string(area[:7]) != "01\x00\x00234" {
		t.Fatalf("%v, %q", err, area)
	}
	clear(area)
	refuse("told twice", message(true, 3, 5, 2, 0, 3))
	if err := u.Expect(3, [][]byte{make([]byte, 11)}); err != nil {
		t.Fatal(err)
	}
	refuse("beyond the slot", u.Imm(imm(3, true)))
	if err := u.Imm(imm(3, false)); err != nil {
		t.Fatal("what is in place needs no slot:", err)
	}
	if err := u.Expect(3, pieces); err != nil {
		t.Fatal(err)
	}
	u.Forget()
	refuse("forgotten", u.Imm(imm(3, true)))
}

func TestTable(t *testing.T) {
	table := Table{Rows: []Row{{2, 100}, {8, 1000}, {64, 0}}}
	for _, c := range []struct {
		fragments int
		bytes     int64
		want      Method
	}{
		{0, 0, Gather}, {1, 1, Gather}, {2, 199, Pack}, {2, 200, Gather}, {7, 500, Pack},
		{7, 5000, Gather}, {8, 5000, Pack}, {63, 63 * 999, Pack}, {63, 63 * 1000, Gather},
		{64, 64, Gather},
	} {
		if got := table.Method(c.fragments, c.bytes); got != c.want {
			t.Errorf("%d fragments of %d bytes: %v", c.fragments, c.bytes, got)
		}
	}
	for _, bad := range [][]Row{{{0, 1}}, {{1, -1}}, {{2, 1}, {2, 2}}, {{3, 1}, {2, 2}}} {
		bad := Table{Rows: bad}
		if errs.KindOf(bad.validate()) != errs.Invalid {
			t.Errorf("%v is good", bad)
		}
	}
	for _, below := range []int{0, 1, 8 << 10} {
		d := Defaults(fabric.Caps{PackBelow: below})
		if err := d.validate(); err != nil {
			t.Error(below, err)
		}
		if got := d.Method(8, 8*int64(below)-1); below > 0 && got != Pack || below == 0 && got != Gather {
			t.Errorf("pieces below %d bytes: %v", below, got)
		}
	}
}

func TestCrossover(t *testing.T) {
	for _, c := range []struct {
		gather, pack []int // by size: 1 KiB, 4 KiB, 16 KiB
		want         int
	}{
		{[]int{10, 10, 10}, []int{20, 20, 20}, 0},
		{[]int{10, 10, 10}, []int{10, 10, 10}, 0},        // two copies for nothing
		{[]int{20, 10, 10}, []int{10, 20, 20}, 2 << 10},  // half-way to 4 KiB
		{[]int{20, 20, 10}, []int{10, 10, 20}, 8 << 10},  // half-way to 16 KiB
		{[]int{20, 20, 20}, []int{10, 10, 10}, 32 << 10}, // not reached
		{[]int{11, 30, 10}, []int{12, 10, 20}, 8 << 10},  // a bad sample
	} {
		var samples []Sample
		for i := range c.gather {
			samples = append(samples, Sample{
				Fragments: 4, Bytes: 1 << (10 + 2*i),
				Gather: time.Duration(c.gather[i]), Pack: time.Duration(c.pack[i]),
			})
		}
		if got := tableOf(samples).Rows[0].PackBelow; got != c.want {
			t.Errorf("%v against %v: %d, want %d", c.gather, c.pack, got, c.want)
		}
	}
}
