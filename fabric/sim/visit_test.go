package sim

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-storage/sluice/fabric/fabrictest"
)

func TestVisit(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for name, opts := range map[string]Options{
		"free-running": {},
		"delayed":      {Seed: 1, MaxDelay: 10},
		"devices":      {Seed: 2, MaxDelay: 3, RegionsOnly: true, RefusalEnds: true},
	} {
		t.Run(name, func(t *testing.T) {
			net := New(opts)
			ctx, cancel := context.WithCancel(context.Background())
			told, served := make(chan string, 1), make(chan error, 1)
			server, visitor := net.Open(), net.Open()
			go func() {
				served <- fabrictest.Serve(ctx, fabrictest.Meeting{Domain: server},
					func(addr string) { told <- addr })
			}()
			fabrictest.Visit(t, fabrictest.Meeting{Domain: visitor, Addr: <-told})
			cancel()
			if err := <-served; err != nil {
				t.Error(err)
			}
			for _, err := range []error{server.Close(), visitor.Close()} {
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
}
