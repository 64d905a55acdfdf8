package layout

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/wire"
)

func drawPolicy(t *rapid.T) Policy {
	var p Policy
	if rapid.Bool().Draw(t, "has a unit") {
		p.Unit = UnitMin << rapid.IntRange(0, 8).Draw(t, "unit")
	}
	if rapid.Bool().Draw(t, "has a width") {
		p.Width = rapid.OneOf(rapid.IntRange(1, WidthMax), rapid.Just(WidthAll)).Draw(t, "width")
	}
	if rapid.Bool().Draw(t, "has a pool") {
		p.Pool = rapid.StringMatching(`[a-z0-9_][a-z0-9._-]{5,20}x`).Draw(t, "pool")
	}
	return p
}

func TestPoliciesAreReadAsTheyAreWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		if got, err := ParsePolicy(p.String()); err != nil || got != p {
			t.Fatalf("%q is read as %+v, %v", p.String(), got, err)
		}
		var parts Policy
		for _, name := range []string{AttrUnit, AttrWidth, AttrPool} {
			if err := parts.Set(name, p.Get(name)); err != nil {
				t.Fatal(err)
			}
		}
		if parts != p {
			t.Fatalf("the parts of %+v make %+v", p, parts)
		}
		var e wire.Enc
		p.Append(&e)
		d := wire.NewDec(e.B)
		if got := DecodePolicy(&d); d.Done() != nil || got != p {
			t.Fatalf("%+v is sent as %+v", p, got)
		}
	})
}

func TestPoliciesThatNobodyCanFollow(t *testing.T) {
	for _, bad := range []string{
		"", " ", "unit=1", "unit=96K", "unit=32K", "unit=32M", "unit=1G", "unit=0", "unit=-1M", "unit=K",
		"unit=99999999999999M", "width=0", "width=-1", "width=257", "width=65535", "width=many",
		"pool=", "pool=a/b", "pool=-a", "pool=all", "pool=none", "pool=" + strings.Repeat("x", 64),
		"unit", "layout=default", "size=1M", "unit=1M width=1 pool=a unit=2M", "pool=a b",
	} {
		p := Policy{Unit: UnitMin}
		if err := p.Set(AttrAll, bad); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%q is read as %+v, %v", bad, p, err)
		}
		if p != (Policy{Unit: UnitMin}) {
			t.Errorf("%q was refused, and has changed something: %+v", bad, p)
		}
	}
	for _, bad := range []Policy{{Unit: 5}, {Unit: 3 * UnitMin}, {Unit: UnitMax * 2}, {Width: -1},
		{Width: WidthMax + 1}, {Pool: "default"}, {Pool: "a b"}} {
		if errs.KindOf(bad.Validate()) != errs.Invalid {
			t.Errorf("%+v is valid", bad)
		}
	}
}

func TestWhatIsLeftOpenComesFromBelow(t *testing.T) {
	below := Policy{Unit: UnitMin, Width: 3, Pool: "a"}
	for _, c := range []struct{ p, want Policy }{
		{Policy{}, below},
		{Policy{Width: WidthAll}, Policy{UnitMin, WidthAll, "a"}},
		{Policy{Unit: UnitMax, Pool: "b"}, Policy{UnitMax, 3, "b"}},
	} {
		if got := c.p.Over(below); got != c.want {
			t.Errorf("%+v over %+v is %+v", c.p, below, got)
		}
	}
}

func TestNamesFitTheRoomThatIsKeptForThem(t *testing.T) {
	p := Policy{Unit: UnitMin, Width: 1, Pool: "a"}
	if n := len(strings.Join(p.Names(), "\x00")) + 1; n > NamesBytes {
		t.Errorf("names take %d bytes, NamesBytes is %d", n, NamesBytes)
	}
}

func FuzzParsePolicy(f *testing.F) {
	f.Add("unit=1M width=4 pool=fast")
	f.Add("width=all")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePolicy(text)
		if err != nil {
			return
		}
		if err := p.Validate(); err != nil {
			t.Fatalf("%q is read as what is refused: %v", text, err)
		}
		if again, err := ParsePolicy(p.String()); err != nil || again != p {
			t.Fatalf("%q is %+v, written %q, read %+v", text, p, p.String(), again)
		}
	})
}
