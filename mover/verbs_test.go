package mover_test

import (
	"bytes"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/verbs"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/mover"
)

// onVerbs moves by this machine's RDMA device: with memory windows, and with short-lived
// registrations in their place. There are none where there is no device; vmtest/transport runs the
// tests with them in a virtual machine that has one.
//
// Peers are probed as ever: that also finds completions whose event a software device has lost.
func onVerbs() []provider { return onVerbsProbing(0) }

// onQuietVerbs probes no peer, for those who count calls into C.
func onQuietVerbs() []provider { return onVerbsProbing(time.Minute) }

func onVerbsProbing(every time.Duration) []provider {
	addr := verbsAddress()
	if addr == "" {
		return nil
	}
	on := func(name string, opts verbs.Options) provider {
		opts.KeepAlive = every
		return provider{
			name: name,
			open: func(t tester) (fabric.Domain, fabric.Domain, string, mem.Source) {
				var d [2]fabric.Domain
				for i := range d {
					var err error
					d[i], err = verbs.Open(opts)
					check(t, err)
				}
				return d[0], d[1], addr, nil
			},
		}
	}
	return []provider{
		on("verbs", verbs.Options{}), on("verbs-registrations", verbs.Options{NoWindows: true}),
	}
}

// verbsAddress is where this machine's RDMA device listens; empty without a device.
func verbsAddress() string {
	d, err := verbs.Open(verbs.Options{})
	if err != nil {
		return ""
	}
	defer d.Close()
	dev, err := fabric.UpDevice(d.Connector())
	if err != nil {
		return ""
	}
	return net.JoinHostPort(dev.Addrs[0], "0")
}

// TestGatherOnVerbs holds what the device is asked for by gather-16x64k: no byte is copied, each of
// the 16 segments is one work request that takes its pieces from where they are, and all of them
// are one chain, which is one call into C and so one doorbell.
func TestGatherOnVerbs(t *testing.T) {
	all := onQuietVerbs()
	if len(all) == 0 {
		t.Skip("needs an RDMA device")
	}
	const count, size = 16, 64 << 10
	for _, prov := range all {
		t.Run(prov.name, func(t *testing.T) {
			r := newRig(t, prov, rigOptions{bytes: 2 * count * size})
			m := r.mover(mover.Options{})
			for name, pieces := range map[string]int{"piece by piece": 1, "four pieces each": 4} {
				local := spread(count*pieces, size/pieces)
				mine, theirs, views := r.shape(local, spread(count, size), fabric.RemoteWrite)
				p, err := m.NewPlan(mover.Put, mine, theirs)
				check(t, err)
				r.gatherOnce(m, p) // what is made once is made
				fill(r.near.mem, uint64(pieces))
				copies := mem.Copies()
				r.posts.Store(0)
				r.requests.Store(0)
				calls := r.gatherOnce(m, p)
				if got := mem.Copies().Since(copies).Total(); got.Bytes != 0 {
					t.Errorf("%s: %d bytes were copied", name, got.Bytes)
				}
				if r.requests.Load() != count || r.posts.Load() != 1 {
					t.Errorf("%s: %d work requests in %d chains, want %d in 1", name,
						r.requests.Load(), r.posts.Load(), count)
				}
				// Goroutines that take a device's events call into C too, and may do so meanwhile.
				for tries := 0; calls > 1 && tries < 3; tries++ {
					calls = min(calls, r.gatherOnce(m, p))
				}
				if calls != 1 {
					t.Errorf("%s: %d calls into C", name, calls)
				}
				if !bytes.Equal(joined(mine, ofSge), joined(views, ofView)) {
					t.Errorf("%s: wrong bytes", name)
				}
			}
		})
	}
}

// gatherOnce moves a plan and tells how many calls into C were made by starting it.
func (r *rig) gatherOnce(m *mover.Mover, p *mover.Plan) int64 {
	r.t.Helper()
	r.recv(nil)
	time.Sleep(100 * time.Millisecond) // the events of what was before come to an end
	before := runtime.NumCgoCall()
	err := m.Start(p, mover.Run{
		Method: mover.Gather, Notice: mover.Notice{How: mover.Immediate, Tag: 1},
	})
	calls := runtime.NumCgoCall() - before
	check(r.t, err)
	ctx, cancel := patience()
	defer cancel()
	check(r.t, m.Drive(ctx, p, r.near.cq, nil))
	check(r.t, r.far.next(r.t).Err)
	return calls
}
