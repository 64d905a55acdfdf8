// Package benchtest is the other process of a bench within a test's own: enough to see that
// everything works, not to measure.
package benchtest

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/sluice-storage/sluice/bench/partner"
	"github.com/sluice-storage/sluice/bench/plain"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric/shm"
	"github.com/sluice-storage/sluice/fabric/tcp"
)

// Opener opens tcp and shm.
func Opener(t *testing.T) partner.Opener {
	var names atomic.Uint64
	return func(provider string) (d partner.Domain, err error) {
		switch provider {
		case "tcp":
			d.Listen = "127.0.0.1:0"
			d.Domain, err = tcp.Open(tcp.Options{})
		case "shm":
			arenas := shm.NewArenas()
			d.Source = arenas
			d.Listen = fmt.Sprintf("unix:@%s-%p-%d", t.Name(), t, names.Add(1))
			d.Domain, err = shm.Open(shm.Options{Arenas: arenas})
		default:
			err = errs.Newf(errs.Invalid, "test", provider, "no such provider")
		}
		return d, err
	}
}

// Listen listens on loopback until the test ends.
func Listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// Serve serves plain sockets and jobs until the test ends, when everything has to be undone. note
// is told what fails.
func Serve(t *testing.T, note func(error), jobs ...partner.Jobs) partner.Info {
	t.Helper()
	control, tcp := Listen(t), Listen(t)
	local, err := net.Listen("unix", fmt.Sprintf("@%s-%p", t.Name(), t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	undone := make(chan struct{})
	go func() {
		defer close(undone)
		partner.Serve(ctx, control, note, jobs...)
	}()
	go plain.Serve(tcp)
	go plain.Serve(local)
	t.Cleanup(func() {
		local.Close()
		cancel()
		<-undone
	})
	return partner.Info{Control: control.Addr().String(), Plain: tcp.Addr().String(),
		Unix: local.Addr().String()}
}
