package meta

import (
	"strconv"
	"time"

	"github.com/sluice-storage/sluice/wire"
)

// Time is a time of a file, as stat(2) has it: seconds since 1970, before it negative, and
// nanoseconds from there on, below a second. It holds whatever a program can set. One number of
// nanoseconds would not: that ends in 2262. The zero value is the beginning of 1970.
type Time struct {
	Sec  int64
	Nsec uint32
}

// TimeBytes is the size of an encoded Time.
const TimeBytes = 8 + 4

const secondNs = 1_000_000_000

// UnixTime is the time that lies sec seconds and nsec nanoseconds behind the beginning of 1970;
// nsec may be anything.
func UnixTime(sec, nsec int64) Time {
	sec += nsec / secondNs
	if nsec %= secondNs; nsec < 0 {
		sec, nsec = sec-1, nsec+secondNs
	}
	return Time{Sec: sec, Nsec: uint32(nsec)}
}

// TimeOf is a time of package time as that of a file.
func TimeOf(t time.Time) Time { return Time{Sec: t.Unix(), Nsec: uint32(t.Nanosecond())} }

// Now is the time of this host.
func Now() Time { return TimeOf(time.Now()) }

// Time is t in the local time zone. Package time counts years up to 292277024626: what lies beyond
// comes out wrong. See String.
func (t Time) Time() time.Time { return time.Unix(t.Sec, int64(t.Nsec)) }

// UnixNano is t in nanoseconds since 1970: between 1678 and 2262, as clocks show it, that is exact.
func (t Time) UnixNano() int64 { return t.Sec*secondNs + int64(t.Nsec) }

// Compare is negative if t is before u, positive if it is after it.
func (t Time) Compare(u Time) int {
	switch {
	case t.Sec < u.Sec || t.Sec == u.Sec && t.Nsec < u.Nsec:
		return -1
	case t == u:
		return 0
	}
	return 1
}

// After tells whether t is later than u.
func (t Time) After(u Time) bool { return t.Compare(u) > 0 }

// Before tells whether t is earlier than u.
func (t Time) Before(u Time) bool { return t.Compare(u) < 0 }

// Later is the later one of two times.
func Later(t, u Time) Time {
	if u.After(t) {
		return u
	}
	return t
}

// Years that RFC 3339 can write, in seconds: of 0 and of 10000.
const (
	yearFirst = -62167219200
	yearEnd   = 253402300800
)

// String is the time in the form of RFC 3339, in the local time zone, or what date(1) and touch(1)
// take for one that has no such form: @ and the seconds since 1970.
func (t Time) String() string {
	if t.Sec < yearFirst+24*3600 || t.Sec >= yearEnd-24*3600 { // wherever the local zone is
		return "@" + strconv.FormatInt(t.Sec, 10) + "." + strconv.Itoa(secondNs + int(t.Nsec))[1:]
	}
	return t.Time().Format(time.RFC3339Nano)
}

// MarshalText is String.
func (t Time) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// Append adds the time to an encoding: |seconds i64 |nanoseconds u32 |.
func (t *Time) Append(e *wire.Enc) {
	e.I64(t.Sec)
	e.U32(t.Nsec)
}

// Decode reads what Append has written.
func (t *Time) Decode(d *wire.Dec) {
	t.Sec, t.Nsec = d.I64(), d.U32()
	if t.Nsec >= secondNs {
		d.Fail("nanoseconds of more than a second")
	}
}
