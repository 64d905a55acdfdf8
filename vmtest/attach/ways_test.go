package attach

import (
	"strings"
	"testing"
)

// foreground: a supervisor serves the device by one process, and starts it again. One that is to
// end waits until nobody uses the device.
func (r *rig) foreground(t *testing.T) {
	const start = `(sluice attach --foreground w > fg 2>&1 < /dev/null & echo $! > pid)
		until [ "$(` + noted + `)" = $(cat pid) ]; do sleep 0.1; done
		until sluice attach --list | grep -q ' attached  *4 '; do sleep 0.5; done; `
	out := r.run(t, start+`readlink /dev/sluice/w
		echo kept | dd of=/dev/sluice/w bs=512 oflag=direct conv=sync,fsync status=none
		kill -9 $(cat pid); `+start+`readlink /dev/sluice/w
		dd if=/dev/sluice/w bs=512 count=1 iflag=direct status=none | head -1`)
	if out != "/dev/nbd0\n/dev/nbd0\nkept\n" {
		t.Errorf("after a kill: %s", out)
	}
	out = r.run(t, `mkfs.ext4 -q /dev/sluice/w; mkdir -p m; mount /dev/sluice/w m
		kill $(cat pid); sleep 1; kill -0 $(cat pid); echo x > m/x; sync; umount m
		while kill -0 $(cat pid) 2> /dev/null; do sleep 0.1; done; cat fg`)
	if strings.Contains(out, "ERROR") {
		t.Errorf("it says: %s", out)
	}
	r.nothing(t)
	r.run(t, "sluice attach w; mount -o ro /dev/sluice/w m; cat m/x; umount m; sluice detach w")
	r.nothing(t)
}

// lost: a volume that somebody has taken over has nothing but errors, also for a successor.
func (r *rig) lost(t *testing.T) {
	r.run(t, `sluice attach w; sluice volume handover --force w
		until grep -q '"lost": "[^"]' /run/sluice/attach/w/state; do sleep 0.1; done
		sluice attach --list | grep -q ' lost '
		if dd if=/dev/sluice/w of=/dev/null bs=4k count=1 iflag=direct 2> /dev/null; then exit 9; fi
		until [ -n "$(%[1]s)" ]; do sleep 0.1; done; kill -9 $(%[2]s)
		until sluice attach --list | grep -q ' lost  *4 '; do sleep 0.5; done
		if dd if=/dev/sluice/w of=/dev/null bs=4k count=1 iflag=direct 2> /dev/null; then exit 9; fi
		sluice detach --force w`, standing, serving)
	r.nothing(t)
	r.run(t, "sluice attach w; dd if=/dev/sluice/w of=/dev/null bs=4k count=1 iflag=direct "+
		"status=none; sluice detach w")
}
