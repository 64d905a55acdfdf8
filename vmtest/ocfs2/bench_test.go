package ocfs2

import (
	"encoding/json"
	"testing"
)

// loads are what the published deployment was measured with: the tiles of a picture, each read by
// one process, row by row, and the small files of web servers, some of which are asked for much
// more often than others. $N is the node's number, from 0.
var loads = []struct{ name, prepare, job string }{
	{"tiled read", "dd if=/dev/urandom of=/mnt/web/picture bs=1M count=4 conv=fsync status=none",
		"--name=tiles --filename=/mnt/web/picture --rw=read:48k --bs=16k --numjobs=2 " +
			"--offset=$((N * 32))k --offset_increment=16k --size=3M --iodepth=4"},
	{"web farm", "mkdir -p /mnt/web/farm; fio " + farm + " --rw=write --fallocate=none > /dev/null; " +
		"sync -f /mnt/web/farm",
		farm + " --rw=randread --norandommap --file_service_type=zipf:1.2 --iodepth=8"},
}

const farm = "--name=farm --directory=/mnt/web/farm --nrfiles=100 --filesize=16k --bs=16k"

// figure is what fio says of a node.
type figure struct {
	Jobs []struct {
		Error int
		Read  struct {
			Bytes int64   `json:"io_bytes"`
			BW    float64 `json:"bw_bytes"`
			IOPS  float64
			Lat   struct{ Mean float64 } `json:"clat_ns"`
		}
	}
}

// bench reads by both nodes at the same time, through the I/O servers' caches and past them. It
// prints what comes out; in emulated machines that says nothing of real ones.
func (r *rig) bench(t *testing.T) {
	for _, l := range loads {
		r.run(t, r.n1, "%s", l.prepare)
	}
	for _, mode := range []string{"cached", "direct"} {
		if mode == "direct" {
			r.remount(t, mode)
		}
		for _, l := range loads {
			one, two := r.both(t, `N=$((${HOSTNAME#n} - 1)); fio %s --direct=1 --ioengine=libaio `+
				`--time_based --ramp_time=1 --runtime=2 --group_reporting --output-format=json`, l.job)
			a, b := read(t, one), read(t, two)
			t.Logf("%s, %s: %.1f MB/s, %.0f reads/s of both nodes; %.1f and %.1f ms each", l.name, mode,
				(a.bytes+b.bytes)/1e6, a.reads+b.reads, a.ms, b.ms)
		}
	}
}

type rate struct{ bytes, reads, ms float64 }

func read(t *testing.T, text string) rate {
	t.Helper()
	var f figure
	if err := json.Unmarshal([]byte(text), &f); err != nil || len(f.Jobs) != 1 {
		t.Fatalf("fio: %v: %s", err, text)
	}
	j := f.Jobs[0]
	if j.Error != 0 || j.Read.Bytes == 0 {
		t.Fatalf("fio has read %d bytes, error %d: %s", j.Read.Bytes, j.Error, text)
	}
	return rate{bytes: j.Read.BW, reads: j.Read.IOPS, ms: j.Read.Lat.Mean / 1e6}
}

// remount has the nodes reach the volume in another mode.
func (r *rig) remount(t *testing.T, mode string) {
	t.Helper()
	r.both(t, `set -e; umount /mnt/web; sluice detach web; sluice attach --shared --mode %s web
		mount -t ocfs2 -o noatime $DEV /mnt/web`, mode)
}
