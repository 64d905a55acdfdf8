package vmtest

import (
	"context"
	"errors"
	"sync"
)

// StartCouple is StartFor for two guests at once, named left and right, with an RDMA device on each
// of their wires (rxe0 on the first, and so on). They differ in nothing but the name, which c does
// not need to have.
func (l *Lab) StartCouple(t TB, c GuestConfig) (left, right *Guest) {
	t.Helper()
	names := [2]string{"left", "right"}
	var guests [2]*Guest
	var failures [2]error
	var both sync.WaitGroup
	for i := range guests {
		both.Go(func() {
			one := c
			one.Name = names[i]
			guests[i], failures[i] = l.startWithDevices(one)
		})
	}
	both.Wait()
	t.Cleanup(func() {
		for _, g := range guests {
			if g == nil {
				continue
			}
			g.Kill()
			if t.Failed() {
				t.Logf("console of %s:\n%s", g.Name(), g.Console())
			}
		}
	})
	if err := errors.Join(failures[:]...); err != nil {
		t.Fatalf("%v", err)
	}
	return guests[0], guests[1]
}

// startWithDevices returns the guest also when it got no device: it is there and must be ended.
func (l *Lab) startWithDevices(c GuestConfig) (*Guest, error) {
	g, err := l.Start(context.Background(), c)
	if err != nil {
		return nil, err
	}
	for _, w := range c.Wires {
		if _, err := g.SoftRoCE(context.Background(), w); err != nil {
			return g, err
		}
	}
	return g, nil
}
