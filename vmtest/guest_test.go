package vmtest

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mustRun runs a script that has to succeed, and returns what it prints.
func mustRun(t *testing.T, g *Guest, script string) string {
	t.Helper()
	res, err := g.Run(t.Context(), script)
	if err == nil {
		err = res.Err()
	}
	if err != nil {
		t.Fatalf("%s: %s: %v", g.Name(), script, err)
	}
	return res.Stdout
}

func TestFirst(t *testing.T) {
	lab := Need(t)
	w := lab.NewWire(WireOptions{})
	begin := time.Now()
	g := lab.StartFor(t, GuestConfig{Name: "one", Wires: []*Wire{w}})
	t.Logf("up after %v", time.Since(begin))
	t.Log(mustRun(t, g, "uname -a; ip -br addr; mount; free -m; cat /proc/uptime; dmesg | tail -3"))
	begin = time.Now()
	dev, err := g.SoftRoCE(context.Background(), w)
	t.Log(dev, err, time.Since(begin))
	t.Log(mustRun(t, g, "ibv_devinfo; lsmod; echo x > /host-rw/file"))
}
