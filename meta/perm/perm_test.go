package perm

import (
	"testing"

	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/acl"
)

func TestAllowed(t *testing.T) {
	root := meta.Cred{}
	owner := meta.Cred{UID: 1, GID: 9}
	member := meta.Cred{UID: 2, GID: 9, Groups: []uint32{3, 5}}
	other := meta.Cred{UID: 4, GID: 4}
	file := func(mode uint32) Subject { return Subject{Mode: mode, UID: 1, GID: 5} }
	dir := func(mode uint32) Subject { return Subject{Mode: mode, UID: 1, GID: 5, Dir: true} }
	for _, test := range []struct {
		who  *meta.Cred
		what Subject
		want uint32
		ok   bool
	}{
		{&owner, file(0o640), Read | Write, true}, {&owner, file(0o440), Write, false},
		{&owner, file(0o066), Read, false}, // the first that fits decides
		{&member, file(0o640), Read, true}, {&member, file(0o640), Write, false},
		{&member, file(0o606), Read, false},
		{&other, file(0o604), Read, true}, {&other, file(0o640), Read, false},
		{&other, dir(0o711), Search, true}, {&other, dir(0o711), Read, false},
		{&root, file(0), Read | Write, true}, {&root, file(0o666), Search, false},
		{&root, file(0o601), Search, true}, {&root, dir(0), Search, true},
	} {
		if got := Allowed(test.who, test.what, test.want); got != test.ok {
			t.Errorf("%+v of %+v for %d: %v", test.what, test.who, test.want, got)
		}
	}
	list, err := acl.Parse([]byte("\x02\x00\x00\x00" +
		"\x01\x00\x06\x00\xff\xff\xff\xff" + // owner rw-
		"\x02\x00\x06\x00\x04\x00\x00\x00" + // user 4 rw-
		"\x04\x00\x00\x00\xff\xff\xff\xff" + // group ---
		"\x10\x00\x07\x00\xff\xff\xff\xff" + // mask rwx
		"\x20\x00\x00\x00\xff\xff\xff\xff")) // others ---
	if err != nil {
		t.Fatal(err)
	}
	listed := Subject{Mode: 0o670, UID: 1, GID: 5, ACL: list}
	closed := Subject{Mode: 0o604, UID: 1, GID: 5, ACL: list.WithMode(0o604)}
	for _, test := range []struct {
		who  *meta.Cred
		what Subject
		want uint32
		ok   bool
	}{
		{&other, listed, Read | Write, true}, {&other, listed, Search, false},
		{&member, listed, Read, false}, {&owner, listed, Write, true},
		{&root, listed, Read | Write, true}, {&root, listed, Search, true},
		{&other, closed, Read, true}, {&other, closed, Write, false}, // as Linux: no list, others
	} {
		if got := Allowed(test.who, test.what, test.want); got != test.ok {
			t.Errorf("%+v of %+v for %d: %v", test.what, test.who, test.want, got)
		}
	}
	a := meta.Attr{Type: meta.Directory, Mode: 0o711, UID: 1, GID: 5}
	if Of(&a) != dir(0o711) {
		t.Errorf("the subject of attributes is %+v", Of(&a))
	}
}
