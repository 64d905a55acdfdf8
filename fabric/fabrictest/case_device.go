package fabrictest

import (
	"net"
	"slices"
	"testing"

	"github.com/sluice-storage/sluice/fabric"
)

func deviceCases() []testCase {
	return []testCase{
		{"devices", testDevices},
		{"limits make sense", testLimits},
	}
}

func testDevices(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	for _, s := range []*side{r.a, r.b} {
		devices, err := s.dom.Connector().Devices()
		check(t, err)
		up := 0
		type port struct {
			name   string
			number int
		}
		seen := map[port]bool{}
		for _, d := range devices {
			id := port{d.Name, d.Port}
			if d.Name == "" || d.Port < 0 || d.MTU < 0 || seen[id] {
				t.Errorf("device %+v", d)
			}
			seen[id] = true
			if d.Up {
				up++
			}
		}
		if up == 0 { // the sides are connected through one
			t.Fatalf("none is up: %+v", devices)
		}
	}
	host, _, err := net.SplitHostPort(r.listen.Addr().String())
	if ip := net.ParseIP(host); err != nil || ip == nil || ip.IsUnspecified() {
		return // the provider's addresses are names
	}
	devices, err := r.b.dom.Connector().Devices()
	check(t, err)
	if !slices.ContainsFunc(devices, func(d fabric.Device) bool {
		return d.Up && slices.Contains(d.Addrs, host)
	}) {
		t.Fatalf("none has the listener's host %s: %+v", host, devices)
	}
}

func testLimits(t *testing.T, cfg Config) {
	r := newRig(t, cfg)
	caps := r.a.dom.Caps()
	for name, n := range map[string]int{
		"MaxSge": caps.MaxSge, "MaxMessage": caps.MaxMessage, "MaxTransfer": caps.MaxTransfer,
		"MaxInline": caps.MaxInline, "QueueDepth": caps.QueueDepth, "ReadDepth": caps.ReadDepth,
	} {
		if n < 1 {
			t.Errorf("%s is %d", name, n)
		}
	}
	if caps.MaxTransfer < memBytes || caps.QueueDepth < depth {
		t.Errorf("too little to be of use: %+v", caps)
	}
	if again := r.a.dom.Caps(); again != caps {
		t.Errorf("limits changed from %+v to %+v", caps, again)
	}
}
