package ocfs2

import (
	"strconv"
	"strings"
	"testing"
)

// carried is how many bytes the I/O servers have sent to clients by a provider.
func (r *rig) carried(t *testing.T, provider string) (bytes float64) {
	t.Helper()
	text := r.run(t, r.h1, `for f in /var/lib/sluice/run/iod*.admin; do
		curl -sS -m 120 http://$(cat $f)/metrics > /tmp/metrics || {
			pkill -QUIT -f '[s]luice iod'; sleep 5; tail -n 1500 /var/lib/sluice/log/iod*.log; exit 1; }
		grep pushed_bytes_total /tmp/metrics; done`)
	name := `sluice_msg_provider_pushed_bytes_total{provider="` + provider + `"} `
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			bytes += n
		}
	}
	return bytes
}

// verbs: a volume whose blocks travel by RDMA is a disk as any other: a file system is made on it,
// and everything that is written is read again.
func (r *rig) verbs(t *testing.T) {
	r.token = tokenText.FindString(r.run(t, r.h1,
		"sluice token create --client rdma --volume disk --dir /var/lib/sluice"))
	const as = "export SLUICE_CREDENTIAL=/root/rdma.json; "
	r.run(t, r.n1, as+"sluice join 10.1.0.1:9401 %s", r.token)
	r.run(t, r.n1, as+"sluice volume create disk 64M")
	r.run(t, r.n1, as+"sluice attach disk")
	before, tcp := r.carried(t, "verbs"), r.carried(t, "tcp")
	r.run(t, r.n1, `set -e; mkfs.ext4 -q /dev/sluice/disk; mkdir -p /mnt/disk
		mount /dev/sluice/disk /mnt/disk
		fio --name=v --directory=/mnt/disk --size=2M --numjobs=2 --rw=randwrite --bsrange=4k-128k \
			--ioengine=libaio --iodepth=8 --direct=1 --verify=crc32c --do_verify=1 --verify_fatal=1 \
			--end_fsync=1 --group_reporting > /tmp/fio || { cat /tmp/fio; exit 1; }
		umount /mnt/disk; e2fsck -fn /dev/sluice/disk; sluice detach disk`)
	byVerbs := r.carried(t, "verbs") - before
	t.Logf("%.1f MB were read by verbs, %.1f by tcp", byVerbs/1e6, (r.carried(t, "tcp")-tcp)/1e6)
	if byVerbs < 4<<20 { // what fio has read again
		t.Errorf("%.0f bytes were read by verbs", byVerbs)
	}
}
