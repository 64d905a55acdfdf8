package acl

import (
	"math/rand/v2"
	"testing"

	"github.com/sluice-storage/sluice/errs"
)

// list puts entries together without looking at them.
func list(entries ...entry) []byte {
	b := newBuilder(0)
	for _, e := range entries {
		b = b.add(e)
	}
	return b
}

// lines of a list that is sound.
var (
	owner  = entry{tagOwner, 7, noID}
	group  = entry{tagGroup, 5, noID}
	mask   = entry{tagMask, 6, noID}
	other  = entry{tagOther, 4, noID}
	alice  = entry{tagUser, 7, 1000}
	bob    = entry{tagUser, 4, 1001}
	staff  = entry{tagGroups, 6, 50}
	guests = entry{tagGroups, 1, 60}
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		what  string
		value []byte
		want  errs.Kind
	}{
		{"nothing", nil, errs.OK},
		{"no entries", list(), errs.OK},
		{"minimal", list(owner, group, other), errs.OK},
		{"with a mask", list(owner, group, mask, other), errs.OK},
		{"users and groups", list(owner, alice, bob, group, staff, guests, mask, other), errs.OK},
		{"the same twice, as Linux", list(owner, alice, alice, group, mask, other), errs.OK},
		{"half an entry", list(owner, group, other)[:24], errs.Invalid},
		{"less than a head", []byte{2, 0}, errs.Invalid},
		{"another version", append([]byte{3, 0, 0, 0}, list(owner, group, other)[4:]...),
			errs.Unsupported},
		{"no owner", list(group, other), errs.Invalid},
		{"no group", list(owner, other), errs.Invalid},
		{"no others", list(owner, group), errs.Invalid},
		{"no mask", list(owner, alice, group, other), errs.Invalid},
		{"no mask for a group", list(owner, group, staff, other), errs.Invalid},
		{"out of order", list(owner, group, alice, mask, other), errs.Invalid},
		{"owner twice", list(owner, owner, group, other), errs.Invalid},
		{"mask twice", list(owner, group, mask, mask, other), errs.Invalid},
		{"behind others", list(owner, group, other, mask), errs.Invalid},
		{"an unknown tag", list(owner, group, entry{0x40, 4, noID}, other), errs.Invalid},
		{"too many rights", list(entry{tagOwner, 8, noID}, group, other), errs.Invalid},
		{"a user that is none", list(owner, entry{tagUser, 4, noID}, group, mask, other), errs.Invalid},
		{"too long", make([]byte, BytesMax+1), errs.TooBig},
	} {
		if _, err := Parse(c.value); errs.KindOf(err) != c.want {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}
	full := newBuilder(0).add(owner)
	for i := range uint32((BytesMax-headBytes)/entryBytes - 4) {
		full = full.add(entry{tagUser, 4, i})
	}
	full = full.add(group).add(mask).add(other)
	if l, err := Parse(full); err != nil || l.len() != 511 {
		t.Errorf("the longest list: %v, %d entries", err, l.len())
	}
	odd := list(entry{tagOwner, 7, 3}, group, other)
	if l, err := Parse(odd); err != nil || string(l) != string(list(owner, group, other)) {
		t.Errorf("an id that means nothing is kept: %v %x", err, l)
	}
}

func TestNamesFit(t *testing.T) {
	if n := len(Access) + len(Default) + 2; n > NamesBytes {
		t.Errorf("names take %d bytes, NamesBytes is %d", n, NamesBytes)
	}
}

func parsed(t *testing.T, entries ...entry) List {
	t.Helper()
	l, err := Parse(list(entries...))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestMode(t *testing.T) {
	plain := parsed(t, owner, group, other)
	long := parsed(t, owner, alice, group, staff, mask, other)
	if plain.Mode() != 0o754 || plain.Extended() || long.Mode() != 0o764 || !long.Extended() {
		t.Errorf("modes %o and %o", plain.Mode(), long.Mode())
	}
	if l := long.WithMode(0o4601); l.Mode() != 0o601 || l.at(2) != group || l.at(1) != alice {
		t.Errorf("chmod makes it %x", l)
	}
	if l := plain.WithMode(0o640); l.Mode() != 0o640 || l.len() != 3 {
		t.Errorf("chmod makes it %x", l)
	}
	if l := List("").WithMode(0o777); l != "" {
		t.Errorf("chmod makes a list of nothing: %x", l)
	}
}

func TestInherit(t *testing.T) {
	plain := parsed(t, owner, group, other)
	long := parsed(t, owner, alice, group, staff, mask, other)
	if l, mode := plain.Inherit(0o2666); l != "" || mode != 0o2644 {
		t.Errorf("of a minimal list: %x, %o", l, mode)
	}
	l, mode := long.Inherit(0o640)
	if mode != 0o640 || l.Mode() != 0o640 || l.at(1) != alice || l.at(2) != group {
		t.Errorf("of a long list: %x, %o", l, mode)
	}
	if l, mode := List("").Inherit(0o1777); l != "" || mode != 0o1777 {
		t.Errorf("of none: %x, %o", l, mode)
	}
}

func TestAllows(t *testing.T) {
	l := parsed(t, owner, alice, bob, group, staff, guests, mask, other)
	const own = 40
	for _, c := range []struct {
		uid    uint32
		groups []uint32
		want   uint32
		ok     bool
	}{
		{1000, nil, 6, true}, {1000, nil, 1, false}, // within the mask
		{1001, []uint32{50}, 2, false}, // users come before groups
		{7, []uint32{own}, 4, true}, {7, []uint32{own}, 1, false},
		{7, []uint32{50}, 6, true},
		{7, []uint32{own, 50}, 2, true}, {7, []uint32{60, 50}, 6, true},
		{7, []uint32{60}, 4, false}, // of a group: others do not count
		{7, nil, 4, true}, {7, nil, 2, false},
	} {
		in := func(gid uint32) bool {
			for _, g := range c.groups {
				if g == gid {
					return true
				}
			}
			return false
		}
		if got := l.Allows(c.uid, own, in, c.want); got != c.ok {
			t.Errorf("%d of %v for %d: %v", c.uid, c.groups, c.want, got)
		}
	}
	if plain := parsed(t, owner, group, other); !plain.Allows(7, own,
		func(gid uint32) bool { return gid == own }, 5) {
		t.Error("without a mask the group has less")
	}
}

// FuzzParse: whatever comes in, what is accepted is sound, stays itself, and shows a mode that
// chmod brings back.
func FuzzParse(f *testing.F) {
	f.Add(list(owner, group, other))
	f.Add(list(owner, alice, bob, group, staff, guests, mask, other))
	f.Add(list(owner, group, mask, other)[:30])
	f.Fuzz(func(t *testing.T, value []byte) {
		l, err := Parse(value)
		if err != nil {
			if l != "" {
				t.Fatalf("%v, and a list all the same", err)
			}
			return
		}
		again, err := Parse([]byte(l))
		if err != nil || again != l {
			t.Fatalf("%x becomes %x: %v", l, again, err)
		}
		if l == "" {
			return
		}
		if l.WithMode(l.Mode()) != l {
			t.Fatalf("%x does not survive its own mode %o", l, l.Mode())
		}
		mode := rand.Uint32N(0o1000)
		if got := l.WithMode(mode).Mode(); got != mode {
			t.Fatalf("%x with mode %o shows %o", l, mode, got)
		}
		_, mode = l.Inherit(mode)
		if mode&^l.Mode() != 0 {
			t.Fatalf("%x gives %o away", l, mode)
		}
		l.Allows(1, 2, func(gid uint32) bool { return gid&1 == 0 }, 7)
	})
}
