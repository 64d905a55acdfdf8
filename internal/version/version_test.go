package version

import (
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	if String() == "" {
		t.Fatal("a build without a version has no name")
	}
	Set("v1.2\n3 " + strings.Repeat("x", 2*Max))
	if v := String(); !strings.HasPrefix(v, "v1.23x") || len(v) != Max {
		t.Fatalf("%q does not fit a table", v)
	}
	Set("")
	if String() == "" {
		t.Fatal("no version at all")
	}
}
