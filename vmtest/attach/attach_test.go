// Package attach runs a cluster in a virtual machine with a stock kernel: a volume of it as a block
// device, a file system on that, and everything killed that can be; and the machine's clock is set.
// There is nothing here but tests.
package attach

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/vmtest"
)

// patience bounds one step in a guest that is emulated on a busy machine.
const patience = 5 * time.Minute

// goesOn is how long a device may stand still after a kill, on a quiet machine. One that is busy
// with other tests is given more, which is still no more than a slow one needs.
const (
	goesOn     = 10 * time.Second
	goesOnBusy = time.Minute
)

// rig is a cluster in a guest.
type rig struct {
	g   *vmtest.Guest
	bin string
}

func newRig(t *testing.T) *rig {
	lab := vmtest.Need(t)
	r := &rig{bin: vmtest.Program(t)}
	cpus := 1
	if soak() {
		cpus = 2 // as a host has where somebody measures
	}
	r.g = lab.StartFor(t, vmtest.GuestConfig{Name: "kernel", Memory: 2048, CPUs: cpus})
	r.run(t, "modprobe -a nbd fuse; mkdir mnt; "+
		"sluice up -d --dir c --iods 2 --memory 100M --mount mnt; "+
		"sluice volume create v 96M; sluice volume create w 16M")
	return r
}

// soak tells whether there is time for more than make test has, and whether the machine is quiet.
func soak() bool { return os.Getenv("SLUICE_SOAK") != "" }

// run types commands in the guest and returns what they printed.
func (r *rig) run(t *testing.T, format string, args ...any) string {
	t.Helper()
	res, err := r.try(t, format, args...)
	if err != nil {
		t.Fatalf("%s\n%v\n%s\nlog: %s", fmt.Sprintf(format, args...), err, res.Stdout, r.log(t))
	}
	return res.Stdout
}

func (r *rig) try(t *testing.T, format string, args ...any) (vmtest.Result, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	script := "set -e; export PATH=" + filepath.Dir(r.bin) + ":$PATH; cd /tmp; "
	res, err := r.g.Exec(ctx, vmtest.Command{Script: script + fmt.Sprintf(format, args...),
		Limit: patience})
	if err == nil {
		err = res.Err()
	}
	return res, err
}

// log is what the processes of devices have said.
func (r *rig) log(t *testing.T) string {
	res, _ := r.try(t, "tail -n 40 /run/sluice/attach/*/log; dmesg | tail -n 30")
	return res.Stdout
}

// device is what `sluice attach --json` prints.
type device struct {
	Device, Link, State string
	Size                int64
	Connections         int
	PID                 int `json:"pid"`
}

func parse(t *testing.T, text string) []device {
	t.Helper()
	var list []device
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return list
}

func (r *rig) attach(t *testing.T, args string) device {
	t.Helper()
	return parse(t, r.run(t, "sluice attach --json %s", args))[0]
}

// TestAttach is the life of a device. Its parts build on each other.
func TestAttach(t *testing.T) {
	if testing.Short() {
		t.Skip("boots a virtual machine")
	}
	r := newRig(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T)
		soak bool // not in every run: an emulated machine takes a minute for it
	}{
		{"ten at once", r.tenAtOnce, false},
		{"kills under load", r.kills, false},
		{"grows", r.grows, false},
		{"detached and attached again", r.again, false},
		{"servers", r.servers, false},
		{"behind TLS", r.tls, true},
		{"foreground", r.foreground, true},
		{"taken over", r.lost, true},
		{"first read", r.firstRead, true},
		{"random lives", r.randomLives, false},
		{"the wall clock is set", r.clockSteps, true},
	} {
		if part.soak && !soak() {
			continue
		}
		begin, spent := time.Now(), r.g.Spent()
		if !t.Run(part.name, part.run) {
			break // what follows builds on it
		}
		t.Logf("%s: %.1f s, %.1f s of processors", part.name, time.Since(begin).Seconds(),
			(r.g.Spent() - spent).Seconds())
	}
}

// tenAtOnce: ten calls at the same time attach one device, which is as it should be.
func (r *rig) tenAtOnce(t *testing.T) {
	out := r.run(t, `for i in $(seq 10); do sluice attach v --connections 4 > out$i 2>&1 & done
		wait; cat out*; pgrep -c -x sluice-attach > serving; sort -u out* | wc -l`)
	if !strings.Contains(out, "/v is /dev/nbd0, /dev/sluice/v") {
		t.Fatalf("they say: %s", out)
	}
	if lines := out[strings.LastIndexByte(strings.TrimSpace(out), '\n')+1:]; lines != "2\n" {
		t.Errorf("they do not all say the same: %s", out)
	}
	if n := r.run(t, "cat serving"); n != "1\n" {
		t.Errorf("%s processes serve it", n)
	}
	d := r.attach(t, "v")
	if d.Device != "/dev/nbd0" || d.Connections != 4 || d.Size != 96<<20 || d.State != "attached" {
		t.Errorf("%+v", d)
	}
	for what, want := range map[string]string{
		"cat /sys/block/nbd0/backend":                         "sluice://127.0.0.1:9400/v#v\n",
		"cat /sys/block/nbd0/queue/max_sectors_kb":            "1024\n",
		"cat /sys/block/nbd0/queue/read_ahead_kb":             "2048\n",
		"readlink /dev/sluice/v":                              "/dev/nbd0\n",
		"blockdev --getsize64 /dev/nbd0":                      "100663296\n",
		"cat /proc/" + strconv.Itoa(d.PID) + "/oom_score_adj": "-1000\n",
	} {
		got := r.run(t, "%s", what)
		if got != want {
			t.Errorf("%s: %q", what, got)
		}
	}
	if locked := r.run(t, "awk '/VmLck/ {print $2}' /proc/%d/status", d.PID); len(locked) < 5 {
		t.Errorf("only %s kB are locked", locked)
	}
	r.refusals(t)
}

// refusals: what cannot be is refused, and says what can.
func (r *rig) refusals(t *testing.T) {
	for _, c := range []struct{ command, says string }{
		{"sluice attach --read-only v", "sluice detach v"},
		{"sluice attach absent", "absent"},
		{"sluice attach w /dev/nbd0", "in use|busy|Busy|already"},
		{"sluice detach w", "attach --list"},
		{"sluice nbd --listen 127.0.0.1:0 --export name=v,volume=v", "handover"},
	} {
		out := r.run(t, "if %s > out 2>&1; then echo it worked; fi; cat out", c.command)
		found := false
		for _, word := range strings.Split(c.says, "|") {
			found = found || strings.Contains(out, word)
		}
		if strings.Contains(out, "it worked") || !found {
			t.Errorf("%s: %s", c.command, out)
		}
	}
	if left := r.run(t, "ls /run/sluice/attach"); left != "v\n" {
		t.Errorf("left: %s", left)
	}
}

// stalls reads the device all the time and notes how long each read took, in milliseconds.
const stalls = `(while [ ! -e stop ]; do
		from=$(date +%s%N)
		dd if=/dev/nbd0 of=/dev/null bs=4k count=1 skip=$((RANDOM % 20000)) iflag=direct \
			status=none || echo failed
		echo $((($(date +%s%N) - from) / 1000000)); sleep 0.5
	done; echo end) > stalls 2>&1 < /dev/null &`

// kills: while fio writes and checks what it reads, processes are killed: the one that serves the
// device, the one that stands by, and I/O servers. Nothing fails, or stands still for long, and
// nothing is lost that was synced a moment before: n counts the files of which that is known.
func (r *rig) kills(t *testing.T) {
	r.run(t, "mkfs.ext4 -q /dev/sluice/v; mkdir -p m; mount /dev/sluice/v m; rm -f stop; %s",
		stalls)
	r.run(t, `(fio --name=load --directory=m --size=16M --bs=4k-64k --rw=randrw --ioengine=libaio \
		--direct=1 --iodepth=16 --numjobs=2 --verify=crc32c --verify_backlog=64 --time_based \
		--runtime=15 --rate_iops=10 --fsync=16 --output=fio.out > fio.say 2>&1
		echo $? > fio.code) < /dev/null &`)
	n := 0
	kill := func(what, pids string) {
		t.Helper()
		time.Sleep(time.Second) // some load
		n++
		t.Logf("killing %s: %s", what, strings.TrimSpace(r.run(t, "f=m/synced%d; p=$(%s); "+
			"dd if=/dev/urandom of=$f bs=64k count=4 conv=fsync status=none; kill -9 $p; echo $p; "+
			"while kill -0 $p 2> /dev/null; do sleep 0.1; done; sha256sum $f >> sums", n, pids)))
	}
	kill("the process that serves", serving)
	r.settle(t)
	kill("an I/O server", "pgrep -f '[s]luice iod' | head -1")
	kill("the process that stands by", standing)
	r.settle(t)
	kill("the process that serves, and the I/O servers", serving+"; pgrep -f '[s]luice iod'")
	r.run(t, "until [ -e fio.code ]; do sleep 0.2; done; touch stop; "+
		"until grep -q end stalls; do sleep 0.1; done; "+
		"echo 3 > /proc/sys/vm/drop_caches; sha256sum --quiet -c sums; [ $(wc -l < sums) = %d ]; "+
		"until sluice attach --list | grep -q ' attached  *4 '; do sleep 0.5; done", n)
	if code := r.run(t, "cat fio.code"); code != "0\n" {
		t.Errorf("fio ended with %s: %s", code, r.run(t, "cat fio.out fio.say"))
	}
	r.judge(t)
}

// serving and standing are the commands that print who serves the device, and who stands by. They
// look where processes leave that to each other: to start the program for it takes an emulated
// machine half a second each time.
const (
	noted    = `cat /run/sluice/attach/*/state | sed -n 's/.*"pid": \([0-9]*\).*/\1/p' | head -1`
	serving  = `until p=$(` + noted + `) && kill -0 $p 2> /dev/null; do sleep 0.1; done; echo $p`
	standing = `pgrep -x sluice-standby | head -1`
)

// settle waits until the device is served, and somebody stands by.
func (r *rig) settle(t *testing.T) {
	t.Helper()
	r.run(t, `%s > /dev/null; until [ -n "$(%s)" ]; do sleep 0.2; done`, serving, standing)
}

// judge looks at how long reads took.
func (r *rig) judge(t *testing.T) {
	t.Helper()
	worst, reads := 0, 0
	for line := range strings.Lines(r.run(t, "cat stalls")) {
		line = strings.TrimSpace(line)
		if ms, err := strconv.Atoi(line); err == nil {
			worst, reads = max(worst, ms), reads+1
		} else if line != "end" {
			t.Errorf("a read: %s", line)
		}
	}
	most := goesOnBusy
	if soak() {
		most = goesOn
	}
	t.Logf("%d reads, the longest took %.1f s", reads, float64(worst)/1000)
	if time.Duration(worst)*time.Millisecond > most {
		t.Errorf("the device stood still for %d ms", worst)
	}
}

func (r *rig) grows(t *testing.T) {
	r.run(t, `sluice volume resize v +32M
		until [ $(blockdev --getsize64 /dev/nbd0) = 134217728 ]; do sleep 0.1; done
		resize2fs /dev/nbd0 2> /dev/null; sha256sum --quiet -c sums
		[ $(df --output=size -k m | tail -1) -gt 110000 ]`)
	if d := r.attach(t, "v"); d.Size != 128<<20 {
		t.Errorf("%+v", d)
	}
}

// again: a device that is mounted is not detached; one that is not leaves nothing.
func (r *rig) again(t *testing.T) {
	out := r.run(t, "if sluice detach v > out 2>&1; then echo it worked; fi; cat out")
	if strings.Contains(out, "it worked") || !strings.Contains(out, "Unmount") {
		t.Fatalf("detached while mounted: %s", out)
	}
	r.run(t, "umount m; fsck.ext4 -fn /dev/sluice/v; sluice detach v")
	r.nothing(t)
	d := r.attach(t, "v /dev/nbd7")
	if d.Device != "/dev/nbd7" || d.Size != 128<<20 {
		t.Errorf("%+v", d)
	}
	r.run(t, "mount /dev/sluice/v m; sha256sum --quiet -c sums; umount m; fsck.ext4 -fn /dev/nbd7")
	r.run(t, "sluice detach /dev/nbd7")
	r.nothing(t)
	if soak() {
		r.run(t, "sluice attach --read-only v; mount -o ro /dev/sluice/v m; "+
			"sha256sum --quiet -c sums; umount m; sluice detach v")
		r.nothing(t)
	}
	r.neverRead(t)
}

// neverRead: a device that nobody serves any more is detached also where the kernel has not looked
// for its partitions yet, which it does when it is opened for the first time.
func (r *rig) neverRead(t *testing.T) {
	r.run(t, "sluice attach w; until [ -n \"$(%s)\" ]; do sleep 0.1; done; "+
		"pkill -9 'sluice-(attach|standby)'; sluice detach w", standing)
	r.nothing(t)
}

// nothing: no process, no file and no device is left.
func (r *rig) nothing(t *testing.T) {
	t.Helper()
	left := r.run(t, `for i in $(seq 50); do
			pgrep 'sluice-(attach|standby)' > /dev/null || break; sleep 0.1
		done
		pgrep -a 'sluice-(attach|standby)' || true
		ls /run/sluice/attach; ls /dev/sluice 2> /dev/null || true
		cat /sys/block/nbd*/pid 2> /dev/null || true`)
	if left != "" {
		t.Errorf("left: %s", left)
	}
}

// servers: an export of a gateway is attached; the gateway is killed and comes back under load.
func (r *rig) servers(t *testing.T) {
	gateway := "(sluice nbd --listen 127.0.0.1:10809 --export name=w,volume=w > gateway 2>&1 " +
		"< /dev/null & echo $! > pid); until grep -q serving gateway; do sleep 0.1; done; "
	r.run(t, "%s sluice attach nbd://127.0.0.1/w; "+
		"dd if=/dev/urandom of=data bs=1M count=8 status=none", gateway)
	r.run(t, "(dd if=data of=/dev/sluice/w bs=64k oflag=direct conv=fsync status=none; "+
		"echo $? > dd.code) > dd.out 2>&1 < /dev/null & sleep 0.3; kill -9 $(cat pid); "+
		"while kill -0 $(cat pid) 2> /dev/null; do sleep 0.1; done; rm gateway; %s "+
		"until [ -e dd.code ]; do sleep 0.1; done; cat dd.out; [ $(cat dd.code) = 0 ]; "+
		"echo 3 > /proc/sys/vm/drop_caches; cmp -n 8388608 data /dev/sluice/w; sluice detach w; "+
		"kill $(cat pid); while kill -0 $(cat pid) 2> /dev/null; do sleep 0.1; done", gateway)
	r.nothing(t)
}
