//go:build !cgo || !linux || !(amd64 || arm64)

package verbs

import (
	"strings"
	"testing"

	"github.com/sluice-storage/sluice/errs"
)

func TestStubSaysWhy(t *testing.T) {
	if ok, why := Available(); ok || !strings.Contains(why, "without cgo") {
		t.Errorf("available %v, because %q", ok, why)
	}
	if _, err := Open(Options{}); errs.KindOf(err) != errs.Unsupported {
		t.Errorf("Open: %v", err)
	}
	if _, err := Devices(); errs.KindOf(err) != errs.Unsupported {
		t.Errorf("Devices: %v", err)
	}
}
