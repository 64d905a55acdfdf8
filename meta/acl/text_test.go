package acl

import (
	"testing"

	"github.com/sluice-storage/sluice/errs"
)

func TestText(t *testing.T) {
	const text = "user::rwx,user:1000:rw-,group::r-x,group:50:---,mask::rwx,other::r--"
	l, err := ParseText(text)
	if err != nil || l.String() != text {
		t.Errorf("%v: %q", err, l)
	}
	short, err := ParseText("u::rwx,u:1000:rw,g::rx,g:50:-,m::rwx,o::r")
	if err != nil || short != l {
		t.Errorf("%v: %q", err, short)
	}
	for _, bad := range []string{"", "u::rwx", "u::rwx,g::r,o::q", "u::rwx,g::r,o:7:r",
		"u::rwx,g:x:r,g::r,m::r,o::r", "x::r", "u::r,g::r,u:5:r,m::r,o::r"} {
		if l, err := ParseText(bad); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%q: %v, %q", bad, err, l)
		}
	}
}
