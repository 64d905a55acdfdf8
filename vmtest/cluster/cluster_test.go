// Package cluster runs a cluster in virtual machines with RDMA devices (Soft-RoCE): a host in one
// and a client, which joins, in the other. There is nothing here but tests.
package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/vmtest"
)

// patience bounds one step in a guest that is emulated on a busy machine.
const patience = 4 * time.Minute

// rig is a cluster in guest a, and guest b.
type rig struct {
	wires [2]*vmtest.Wire
	a, b  *vmtest.Guest
	bin   string
	addr  string // of the metadata service
}

func newRig(t *testing.T) *rig {
	lab := vmtest.Need(t)
	r := &rig{bin: vmtest.Program(t)}
	for i := range r.wires {
		r.wires[i] = lab.NewWire(vmtest.WireOptions{})
	}
	r.a, r.b = lab.StartCouple(t, vmtest.GuestConfig{Wires: r.wires[:]})
	r.addr = r.a.Addr(r.wires[0]).String() + ":9400"
	return r
}

// run types a command in a guest and returns what it printed. On a busy machine a guest may be too
// slow for a handshake; a command that has not reached the cluster is typed again.
func (r *rig) run(t *testing.T, g *vmtest.Guest, format string, args ...any) string {
	t.Helper()
	typed := fmt.Sprintf(format, args...)
	for try := 0; ; try++ {
		res, err := r.runOnce(t, g, typed)
		if err == nil {
			return res.Stdout
		}
		if try == 5 || !strings.Contains(res.Stderr, "Is the cluster running") {
			t.Fatalf("%s: %s\n%v\n%s%s", g.Name(), typed, err, res.Stdout, res.Stderr)
		}
		t.Log("not reached: ", res.Stderr)
	}
}

func (r *rig) runOnce(t *testing.T, g *vmtest.Guest, typed string) (vmtest.Result, error) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	script := "export PATH=" + filepath.Dir(r.bin) + ":$PATH SLUICE_CREDENTIAL=/tmp/b.json; "
	if g == r.a {
		script = "export PATH=" + filepath.Dir(r.bin) + ":$PATH; "
	}
	res, err := g.Exec(ctx, vmtest.Command{Script: script + typed, Limit: patience})
	if err == nil {
		err = res.Err()
	}
	return res, err
}

// rung is one of what `bench net --ladder --json` prints.
type rung struct {
	Provider, Outcome, Known, Why string
}

// way waits until b reaches a by a provider, and tells how a is known there. Where the machine is
// so busy that a device does not answer in time the client goes by tcp, and says so.
func (r *rig) way(t *testing.T, provider string) (way rung) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if way = r.wayNow(t); way.Provider == provider {
			return way
		}
	}
	t.Fatalf("%s reaches %s by %+v, not by %s", r.b.Name(), r.addr, way, provider)
	return way
}

func (r *rig) wayNow(t *testing.T) rung {
	t.Helper()
	var all []rung
	text := r.run(t, r.b, "sluice bench net --ladder %s --json", r.addr)
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for _, one := range all {
		if one.Outcome == "taken" {
			return one
		}
		t.Logf("not by %+v", one)
	}
	t.Fatalf("nothing was taken: %s", text)
	return rung{}
}

var token = regexp.MustCompile(`sluice1\.\S+`)

// TestCluster: a client in another machine joins, and what it writes and reads goes by RDMA, which
// it is let in to by the certificate that it shows over TLS.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("boots virtual machines")
	}
	r := newRig(t)
	t.Log(r.run(t, r.a, "cd /tmp; sluice up -d --mem --dir c --listen %s --iods 1 --memory 400M",
		r.addr))
	text := token.FindString(r.run(t, r.a,
		"cd /tmp; sluice token create --client b --squash none --dir c"))
	t.Log(r.run(t, r.b, "modprobe fuse; mkdir -p /tmp/mnt; sluice join %s %s --mount /tmp/mnt",
		strings.Replace(r.addr, ":9400", ":9401", 1), text))
	if w := r.way(t, "verbs"); !strings.Contains(w.Known, "/host/") {
		t.Errorf("the cluster is reached by %+v", w)
	}
	r.run(t, r.b, "cd /tmp; head -c 8M /dev/urandom > f; sluice cp f sluice:/f && "+
		"sluice cp sluice:/f g && cmp f g")
	if os.Getenv("SLUICE_SOAK") != "" {
		t.Run("speed", r.speed)
		t.Run("transfer", r.transfer)
	}
	t.Run("falls and climbs", r.fallAndClimb)
	t.Logf("%.1f s of processors", (r.a.Spent() + r.b.Spent()).Seconds())
}
