// Package clock sets the wall clock of a host back and forth under a running cluster: in a virtual
// machine, because no process of this host can have a clock of its own. There is nothing here but
// tests.
package clock

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/vmtest"
)

// patience bounds waits that end early in all cases but failures; it says nothing about speed.
const patience = 10 * time.Minute

// prelude starts a cluster in the guest and makes a file that is known.
const prelude = `
set -euo pipefail
modprobe fuse
cd /dev/shm
mkdir -p mnt
"$SLUICE" up -d --dir c --iods 2 --mount mnt --listen 127.0.0.1:0
head -c 3000000 /dev/urandom > old
cp old mnt/old
sync -f mnt
exec 9<mnt/old`

// use reads what was there by an old handle and by new ones, in every way that needs a capability,
// and makes something new.
const use = `
look() {
	dd bs=1M iflag=direct status=none <&9 | cmp - old
	exec 9<mnt/old
	dd if=mnt/old bs=1M iflag=direct status=none | cmp - old
	cp old mnt/new.$1
	sync -f mnt
	dd if=mnt/new.$1 bs=1M iflag=direct status=none | cmp - old
	mv mnt/new.$1 mnt/kept.$1
	cmp mnt/kept.$1 old
	echo "fine: $1"
}
step() {
	date -s "@$(($(date +%s) + $2))" > /dev/null
	look "$1"
	sleep 3
	look "$1.later"
}
look before
step back -7200
step forth 86400
step back-a-little -90
"$SLUICE" down --dir c`

// TestWallClockSteps: a clock that is set back by two hours, ahead by a day, and back by more than
// a capability lives, concerns nobody who works.
func TestWallClockSteps(t *testing.T) {
	if testing.Short() {
		t.Skip("boots a virtual machine")
	}
	lab := vmtest.Need(t)
	bin := filepath.Join(t.TempDir(), "sluice")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./cmd/sluice")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build.Args, err, out)
	}
	g := lab.StartFor(t, vmtest.GuestConfig{Name: "clock"})
	res, err := g.Exec(t.Context(), vmtest.Command{
		Script: prelude + use, Env: []string{"SLUICE=" + bin}, Limit: patience})
	if err == nil {
		err = res.Err()
	}
	if err != nil || !strings.Contains(res.Stdout, "fine: back-a-little.later") {
		logs, _ := g.Run(t.Context(), "tail -n 20 /dev/shm/c/log/*")
		t.Fatalf("%v\n%s\n%s", err, res.Stdout, logs.Stdout)
	}
}
