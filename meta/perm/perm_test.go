package perm

import (
	"testing"

	"github.com/sluice-storage/sluice/meta"
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
	a := meta.Attr{Type: meta.Directory, Mode: 0o711, UID: 1, GID: 5}
	if Of(&a) != dir(0o711) {
		t.Errorf("the subject of attributes is %+v", Of(&a))
	}
}
