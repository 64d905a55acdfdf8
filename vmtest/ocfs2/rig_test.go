// Package ocfs2 runs a cluster file system, OCFS2, in virtual machines with stock kernels on one
// volume that they share: a host with the I/O servers, h1, and two nodes, n1 and n2, to which it is
// attached. There is nothing here but tests; they type what docs/ops/ocfs2.md says.
package ocfs2

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/vmtest"
)

// patience bounds one step in a guest that is emulated on a busy machine.
const patience = 8 * time.Minute

// manual is where people read what the tests type.
const manual = "../../docs/ops/ocfs2.md"

// rig is the three machines. n1 has an RDMA device, as h1 has, and n2 has none: so the blocks of
// one volume travel by verbs to one node and by tcp to the other.
type rig struct {
	lab        *vmtest.Lab
	wire       *vmtest.Wire
	h1, n1, n2 *vmtest.Guest
	bin        string
	token      string
	doc        string
	proved     bool   // that blocks travel by verbs
	share      string // the folder of a node that has died
}

// threshold is after how many missed beats, of two seconds each, a node is dead to the others. It
// is half of the default, so that tests wait less; nodes of a busy machine are still far from it.
const threshold = 16

// device is where the manual has the volume.
const device = "/dev/sluice/web"

// nodes are those that mount the file system.
func (r *rig) nodes() [2]*vmtest.Guest { return [2]*vmtest.Guest{r.n1, r.n2} }

func newRig(t *testing.T) *rig {
	t.Helper()
	for _, tool := range []string{"mkfs.ocfs2", "fsck.ocfs2", "o2cb", "fio"} {
		need(t, tool)
	}
	lab := vmtest.Need(t)
	r := &rig{lab: lab, bin: vmtest.Program(t),
		wire: lab.NewWire(vmtest.WireOptions{})}
	text, err := os.ReadFile(manual)
	if err != nil {
		t.Fatal(err)
	}
	r.doc = string(text)
	r.boot(t)
	return r
}

// need skips the test where a tool is missing, unless that is not to be.
func need(t *testing.T, tool string) {
	t.Helper()
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/sbin") {
		if _, err := exec.LookPath(filepath.Join(dir, tool)); err == nil {
			return
		}
	}
	text := "there is no " + tool + " on this machine (Debian: packages ocfs2-tools, fio)"
	if os.Getenv("SLUICE_VMTEST") == "must" {
		t.Fatal(text)
	}
	t.Skip(text)
}

// machines are what the manual begins with; memory is in MiB.
var machines = []struct {
	name   string
	addr   string
	memory int
	rdma   bool
}{
	{"h1", "10.1.0.1", 2048, true}, {"n1", "10.1.0.2", 1024, true}, {"n2", "10.1.0.3", 768, false},
}

// boot starts the machines, all at the same time.
func (r *rig) boot(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { r.end(t) })
	shares := [...]string{t.TempDir(), t.TempDir(), t.TempDir()}
	guests := [...]**vmtest.Guest{&r.h1, &r.n1, &r.n2}
	fails := make([]error, len(machines))
	var all sync.WaitGroup
	for i := range machines {
		all.Go(func() { *guests[i], fails[i] = r.start(t, i, shares[i]) })
	}
	all.Wait()
	if err := errors.Join(fails...); err != nil {
		t.Fatal(err)
	}
	r.run(t, r.h1, "modprobe brd rd_nr=1 rd_size=1000000; mkfs.ext4 -q /dev/ram0; "+
		"mount /dev/ram0 /var/lib/sluice")
}

// start starts a machine and gives it what it has when the manual begins: the address that stands
// there, and the program. It returns the guest also when that has failed: somebody must end it.
func (r *rig) start(t *testing.T, i int, share string) (*vmtest.Guest, error) {
	m := machines[i]
	g, err := r.lab.Start(t.Context(), vmtest.GuestConfig{Name: m.name, Memory: m.memory, CPUs: 1,
		Wires: []*vmtest.Wire{r.wire}, Share: share})
	if err == nil && m.rdma {
		_, err = g.SoftRoCE(t.Context(), r.wire)
	}
	if err == nil {
		_, err = r.try(t, g, fmt.Sprintf("set -e; ip addr add %s/24 dev eth0; "+
			"ln -sf %s /usr/local/bin/sluice; mkdir -p /mnt/web /var/lib/sluice; "+
			"sed -i 's/^O2CB_HEARTBEAT_THRESHOLD=.*/O2CB_HEARTBEAT_THRESHOLD=%d/' /etc/default/o2cb; "+
			"grep -q ^O2CB_HEARTBEAT_THRESHOLD=%d /etc/default/o2cb", m.addr, r.bin, threshold,
			threshold))
	}
	return g, err
}

// end ends the machines, and shows what they have to say about a failure.
func (r *rig) end(t *testing.T) {
	for _, g := range []*vmtest.Guest{r.h1, r.n1, r.n2} {
		if g == nil {
			continue
		}
		if t.Failed() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			res, _ := g.Run(ctx, "dmesg | tail -n 40; tail -n 30 /run/sluice/attach/*/log "+
				"/var/lib/sluice/log/*.log; ps ax | grep -v '\\[' | tail -n 30")
			cancel()
			t.Logf("%s says:\n%s\nconsole:\n%s", g.Name(), res.Stdout, g.Console())
		}
		g.Kill()
	}
}

// run types a script in a guest and returns what it printed.
func (r *rig) run(t *testing.T, g *vmtest.Guest, format string, args ...any) string {
	t.Helper()
	out, err := r.try(t, g, fmt.Sprintf(format, args...))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// try is run for who wants to know how it failed, and for goroutines. On a busy machine a guest may
// be too slow for a handshake; a command that has not reached the cluster is typed again.
func (r *rig) try(t *testing.T, g *vmtest.Guest, script string) (out string, err error) {
	for range 5 {
		out, err = r.tryOnce(t, g, script)
		if err == nil || !strings.Contains(err.Error(), "Is the cluster running") {
			break
		}
		t.Log("not reached: ", err)
	}
	return out, err
}

func (r *rig) tryOnce(t *testing.T, g *vmtest.Guest, script string) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	res, err := g.Exec(ctx, vmtest.Command{Script: script, Limit: patience,
		Env: []string{"DEV=" + device}})
	if err == nil {
		err = res.Err()
	}
	if err != nil {
		err = fmt.Errorf("%s# %s\n%w", g.Name(), script, err)
	}
	return res.Stdout, err
}

// both types a script in both nodes at the same time.
func (r *rig) both(t *testing.T, format string, args ...any) (n1, n2 string) {
	t.Helper()
	script := fmt.Sprintf(format, args...)
	var out [2]string
	var fails [2]error
	var all sync.WaitGroup
	for i, g := range r.nodes() {
		if g != nil {
			all.Go(func() { out[i], fails[i] = r.try(t, g, script) })
		}
	}
	all.Wait()
	for _, err := range fails {
		if err != nil {
			t.Fatal(err)
		}
	}
	return out[0], out[1]
}

var (
	tokenText = regexp.MustCompile(`sluice1\.\S+`)
	typedLine = regexp.MustCompile(`(?m)^    (h1|n1|n2|n1,n2)# (.*)$`)
)

// commands are those of a part of the manual: where each is typed, and what.
func (r *rig) commands(t *testing.T, heading string) [][2]string {
	t.Helper()
	_, part, found := strings.Cut(r.doc, "\n## "+heading+"\n")
	part, _, _ = strings.Cut(part, "\n## ")
	var all [][2]string
	for _, l := range typedLine.FindAllStringSubmatch(part, -1) {
		all = append(all, [2]string{l[1], l[2]})
	}
	if !found || len(all) == 0 {
		t.Fatalf("%s has no commands under %q", manual, heading)
	}
	return all
}

// typed types the commands of a part of the manual as they stand there; TOKEN is what the command
// before has printed. It returns all that they print.
func (r *rig) typed(t *testing.T, heading string) (printed string) {
	t.Helper()
	guests := map[string]*vmtest.Guest{"h1": r.h1, "n1": r.n1, "n2": r.n2}
	for _, c := range r.commands(t, heading) {
		began := time.Now()
		line, out := strings.ReplaceAll(c[1], "TOKEN", r.token), ""
		switch g, alone := guests[c[0]]; {
		case alone && g != nil:
			out = r.run(t, g, "%s", line)
		case !alone:
			one, two := r.both(t, "%s", line)
			out = one + two
		}
		if token := tokenText.FindString(out); token != "" {
			r.token = token
		}
		printed += out
		t.Logf("%s# %.70s: %.1f s", c[0], line, time.Since(began).Seconds())
	}
	return printed
}
