package mount

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-storage/sluice/bench/process"
)

// TestLimit bounds a process that takes more memory than it may: the kernel ends it.
func TestLimit(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes control groups")
	}
	log := filepath.Join(t.TempDir(), "log")
	go1 := filepath.Join(t.TempDir(), "go")
	d, err := process.Start(log, nil, "sh", "-c",
		"while ! test -e "+go1+"; do sleep 0.01; done; exec tail -c 200000000 /dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	}()
	const most = 32 << 20
	l, err := SetLimit(d.Pid(), most)
	if err != nil {
		t.Skipf("no control groups here: %v", err)
	}
	if err := os.WriteFile(go1, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	<-d.Ended() // it would read zeroes for ever
	if peak := l.Peak(); peak > most {
		t.Errorf("it had %d bytes, and may have %d", peak, most)
	}
	dir := l.dir
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the group is left behind: %v", err)
	}
}
