package attach

import (
	"strings"
	"testing"
)

// use reads what was there by an old handle and by new ones, in every way that needs a capability,
// makes something new, and reads and writes the device.
const use = `
exec 9<mnt/old
look() {
	dd bs=1M iflag=direct status=none <&9 | cmp - old
	exec 9<mnt/old
	dd if=mnt/old bs=1M iflag=direct status=none | cmp - old
	cp old mnt/new.$1
	sync -f mnt
	dd if=mnt/new.$1 bs=1M iflag=direct status=none | cmp - old
	mv mnt/new.$1 mnt/kept.$1
	cmp mnt/kept.$1 old
	dd if=old of=/dev/sluice/w bs=64k count=1 oflag=direct conv=fsync status=none
	dd if=/dev/sluice/w bs=64k count=1 iflag=direct status=none | cmp -n 65536 - old
	echo "fine: $1"
}
step() {
	date -s "@$(($(date +%%s) + $2))" > /dev/null
	look "$1"
	sleep 3
	look "$1.later"
}
look before
step back -7200
step forth 86400
step back-a-little -90`

// clockSteps sets the wall clock of a host back and forth under a running cluster: in a virtual
// machine, because no process of this host can have a clock of its own. A clock that is set back by
// two hours, ahead by a day, and back by more than a capability lives, concerns nobody who works.
func (r *rig) clockSteps(t *testing.T) {
	out := r.run(t, "set -o pipefail; head -c 1000000 /dev/urandom > old; cp old mnt/old; "+
		"sync -f mnt; sluice attach w; "+use+"\nsluice detach w")
	if !strings.Contains(out, "fine: back-a-little.later") {
		t.Error(out)
	}
	r.nothing(t)
}
