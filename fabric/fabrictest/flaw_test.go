package fabrictest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/fabrictest"
	"github.com/sluice-storage/sluice/fabric/hook"
	"github.com/sluice-storage/sluice/fabric/sim"
)

// flawEnv tells the second process of TestSuiteNotices which flaw to have.
const flawEnv = "FABRICTEST_FLAW"

// flaw is something that a provider could do wrong, and a case that must notice it.
type flaw struct {
	name   string
	notice string
	layer  hook.Layer
}

func flaws() []flaw {
	return []flaw{
		{"none", "", hook.Layer{}},
		{"revoking does nothing", "a revoked key is refused", region(&wrongRegion{deaf: true})},
		{"revoking does nothing", "revoke during writes", region(&wrongRegion{deaf: true})},
		{"every right is granted", "access without the right is refused",
			region(&wrongRegion{rights: fabric.RemoteRead | fabric.RemoteWrite})},
		{"a byte too many is granted", "access without the right is refused",
			region(&wrongRegion{more: 1})},
		{"fences are ignored", "a fence holds back until reads are done", drop(fabric.FlagFence)},
		{"inline data is not copied", "inline send", drop(fabric.FlagInline)},
		{"nothing is solicited", "a solicited message wakes", drop(fabric.FlagSolicited)},
		{"all is solicited", "unsolicited completions do not wake", change(func(wr *fabric.WR) {
			wr.Flags |= fabric.FlagSolicited
		})},
		{"everything is signalled", "selective signalling", change(func(wr *fabric.WR) {
			wr.Flags |= fabric.FlagSignaled
		})},
		{"immediates get lost", "send and receive in order", change(func(wr *fabric.WR) {
			wr.Imm = 0
		})},
		{"chains are turned round", "writes are in place before a later send", chains(turned)},
		{"chains are taken in part", "chains are all or none", chains(inPart)},
		{"closing does nothing", "close completes everything at both ends", hook.Layer{
			Endpoint: func(e *hook.Endpoint, _ fabric.EndpointConfig) fabric.Endpoint {
				return immortal{e}
			},
		}},
		{"lengths are wrong", "messages of many sizes", completed(func(c *fabric.Completion) {
			c.Len &^= 1
		})},
		{"failures look like success", "death completes everything exactly once",
			completed(func(c *fabric.Completion) { c.Err = nil })},
	}
}

// wrongRegion grants and revokes wrongly.
type wrongRegion struct {
	*hook.Region
	deaf   bool
	rights fabric.Rights
	more   int
}

func region(like *wrongRegion) hook.Layer {
	return hook.Layer{Region: func(r *hook.Region) fabric.Region {
		w := *like
		w.Region = r
		return &w
	}}
}

func (w *wrongRegion) Revoke(rem fabric.Remote) {
	if !w.deaf {
		w.Region.Revoke(rem)
	}
}

func (w *wrongRegion) Grant(ep fabric.Endpoint, off, length int, rights fabric.Rights) (
	fabric.Remote, error,
) {
	rem, err := w.Region.Grant(ep, off, length+w.more, rights|w.rights)
	rem.Len = uint64(length)
	return rem, err
}

// immortal does not close.
type immortal struct{ *hook.Endpoint }

func (immortal) Close() error { return nil }

// chained posts what wrong makes of a chain, and does not tell.
type chained struct {
	*hook.Endpoint
	wrong func(e *hook.Endpoint, wrs []fabric.WR) error
}

func (c chained) Post(wrs []fabric.WR) error {
	return c.wrong(c.Endpoint, append([]fabric.WR(nil), wrs...))
}

func chains(wrong func(e *hook.Endpoint, wrs []fabric.WR) error) hook.Layer {
	return hook.Layer{Endpoint: func(e *hook.Endpoint, _ fabric.EndpointConfig) fabric.Endpoint {
		return chained{e, wrong}
	}}
}

func change(one func(wr *fabric.WR)) hook.Layer {
	return chains(func(e *hook.Endpoint, wrs []fabric.WR) error {
		for i := range wrs {
			one(&wrs[i])
		}
		return e.Post(wrs)
	})
}

func drop(flag fabric.Flags) hook.Layer {
	return change(func(wr *fabric.WR) { wr.Flags &^= flag })
}

func turned(e *hook.Endpoint, wrs []fabric.WR) error {
	if n := len(wrs); n > 1 {
		wrs[0], wrs[n-1] = wrs[n-1], wrs[0]
	}
	return e.Post(wrs)
}

func inPart(e *hook.Endpoint, wrs []fabric.WR) error {
	var err error
	for i := range wrs {
		if one := e.Post(wrs[i : i+1]); one != nil {
			err = one
		}
	}
	return err
}

func completed(one func(c *fabric.Completion)) hook.Layer {
	return hook.Layer{Completed: func(batch []fabric.Completion) {
		for i := range batch {
			one(&batch[i])
		}
	}}
}

// TestSuiteNotices runs cases against providers with a flaw, in processes of their own, since a
// test that fails cannot be taken back.
func TestSuiteNotices(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range flaws() {
		t.Run(f.name+"/"+f.notice, func(t *testing.T) {
			pattern := "^TestFlawed$"
			if f.notice != "" {
				pattern += "/^" + strings.ReplaceAll(f.notice, " ", "_") + "$"
			}
			cmd := exec.Command(self, "-test.run", pattern, "-test.timeout", "60s")
			cmd.Env = append(os.Environ(), flawEnv+"="+f.name)
			out, err := cmd.CombinedOutput()
			if failed := err != nil; failed != (f.notice != "") {
				t.Fatalf("failed: %v (%v)\n%s", failed, err, out)
			}
			want := "--- FAIL: TestFlawed/" + strings.ReplaceAll(f.notice, " ", "_")
			if f.notice != "" && !strings.Contains(string(out), want) {
				t.Fatalf("it failed elsewhere:\n%s", out)
			}
		})
	}
}

// TestFlawed is the second process of TestSuiteNotices.
func TestFlawed(t *testing.T) {
	name := os.Getenv(flawEnv)
	if name == "" {
		return // an ordinary test run
	}
	for _, f := range flaws() {
		if f.name != name {
			continue
		}
		patience := 10 * time.Second
		if f.notice != "" {
			patience = 500 * time.Millisecond // it fails anyway, and shall do it soon
		}
		net := sim.New(sim.Options{Seed: 1, MaxDelay: 20})
		fabrictest.Run(t, fabrictest.Config{
			Patience: patience,
			Open: func(testing.TB) (fabric.Domain, func() string) {
				return hook.Wrap(net.Open(), f.layer), func() string { return "" }
			},
		})
		return
	}
	t.Fatalf("no flaw is named %q", name)
}
