package meta

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/wire"
)

// TestUnixTime: seconds and nanoseconds of any size are the time that they add up to, as package
// time has it.
func TestUnixTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sec := rapid.Int64Range(-1<<50, 1<<50).Draw(t, "sec")
		nsec := rapid.Int64().Draw(t, "nsec")
		got, want := UnixTime(sec, nsec), time.Unix(sec, nsec)
		if got != TimeOf(want) || !got.Time().Equal(want) || got.Nsec >= secondNs {
			t.Fatalf("%+v, not %v", got, want)
		}
	})
}

// TestTimesAreOrdered: as their seconds are, then their nanoseconds, at the ends of what there is
// too.
func TestTimesAreOrdered(t *testing.T) {
	order := []Time{{math.MinInt64, 0}, {math.MinInt64, 1}, {-11676096000, 999_999_999}, {-1, 0},
		{-1, 999_999_999}, {0, 0}, {0, 1}, {1 << 34, 0}, {math.MaxInt64, 0}, {math.MaxInt64, 999_999_999}}
	for i, a := range order {
		for j, b := range order {
			if got := a.Compare(b); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%+v and %+v: %d", a, b, got)
			}
			if a.Before(b) != (i < j) || a.After(b) != (i > j) || Later(a, b) != order[max(i, j)] {
				t.Errorf("%+v and %+v", a, b)
			}
		}
	}
}

// TestTimeBytes: what is written is read again; nanoseconds that are none are refused.
func TestTimeBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := drawTime(t, "at")
		var e wire.Enc
		at.Append(&e)
		d := wire.NewDec(e.B)
		var got Time
		got.Decode(&d)
		if d.Done() != nil || got != at || len(e.B) != TimeBytes {
			t.Fatalf("%+v became %+v", at, got)
		}
	})
	bad := Time{1, secondNs}
	var e wire.Enc
	bad.Append(&e)
	d := wire.NewDec(e.B)
	if bad.Decode(&d); d.Err() == nil {
		t.Error("a second of nanoseconds is taken")
	}
}

// TestTimeText: what people and JSON see. Years that RFC 3339 cannot write are seconds.
func TestTimeText(t *testing.T) {
	for _, at := range []Time{{0, 5}, {16725225600, 0}, {-11676096000, 123_456_789},
		{253402214399, 0}} {
		got, err := time.Parse(time.RFC3339Nano, at.String())
		if err != nil || TimeOf(got) != at {
			t.Errorf("%+v: %s, %v", at, at, err)
		}
	}
	for at, want := range map[Time]string{
		{math.MaxInt64, 1}: "@9223372036854775807.000000001",
		{math.MinInt64, 0}: "@-9223372036854775808.000000000",
		{1 << 40, 20}:      "@1099511627776.000000020",
	} {
		if text, err := at.MarshalText(); err != nil || string(text) != want {
			t.Errorf("%s, %v, want %s", text, err, want)
		}
	}
	if strings.HasPrefix(Now().String(), "@") {
		t.Error("now has no date")
	}
}

// TestAccessMeets: which accesses count.
func TestAccessMeets(t *testing.T) {
	at := func(sec int64) Time { return Time{Sec: sec} }
	const h = 3600
	for _, c := range []struct {
		what                   string
		atime, mtime, ctime    int64
		was, at                int64
		absolutely, relatively bool
	}{
		{"the first", 5, 5, 5, 5, 6, true, true},
		{"read since it was changed", 6, 5, 5, 6, 7, true, false},
		{"changed since it was read", 6, 7, 7, 6, 8, true, true},
		{"renamed since it was read", 6, 5, 7, 6, 8, true, true},
		{"a day later", 6, 5, 5, 6, 6 + 24*h, true, true},
		{"nearly a day later", 6, 5, 5, 6, 5 + 24*h, true, false},
		{"read by others meanwhile", 8, 7, 7, 6, 9, true, false},
		{"read by others later", 8, 9, 9, 6, 7, false, false},
		{"set back meanwhile", 1, 9, 9, 6, 10, false, false},
		{"ahead, as it was known", 99, 5, 5, 99, 10, true, false},
		{"set ahead meanwhile", 99, 5, 5, 6, 10, false, false},
		{"told already", 10, 11, 11, 10, 10, false, false},
	} {
		a := Attr{Atime: at(c.atime), Mtime: at(c.mtime), Ctime: at(c.ctime)}
		x := Access{Was: at(c.was), At: at(c.at)}
		if got := x.Meets(&a); got != c.absolutely {
			t.Errorf("%s: %v", c.what, got)
		}
		x.Relative = true
		if got := x.Meets(&a); got != c.relatively {
			t.Errorf("%s, relatively: %v", c.what, got)
		}
	}
}
