package nbd

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/bench"
)

func TestDeviceNeedsAServer(t *testing.T) {
	if _, err := exec.LookPath("fio"); err != nil {
		t.Skip("needs fio: make deps")
	}
	uri := "nbd+unix:///x?socket=" + filepath.Join(t.TempDir(), "absent")
	r, err := reads(uri, "read", bench.Bandwidth, 4096)(t.Context(), 10*time.Millisecond)
	if err == nil {
		t.Errorf("measured %+v without a server", r)
	}
	if cases, err := Cases(t.Context(), uri, uri); err == nil {
		t.Errorf("%+v without a server", cases)
	}
}
