package partner_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/benchtest"
	"github.com/sluice-storage/sluice/bench/partner"
)

func TestJobsAreDoneAndUndone(t *testing.T) {
	undone := make(chan string, 2)
	info := benchtest.Serve(t, func(err error) { t.Error(err) }, partner.Jobs{
		"add": partner.On(func(s *partner.Session, list []int) (sum int, err error) {
			for _, n := range list {
				sum += n
			}
			s.Later(func() error { undone <- "first"; return nil })
			s.Later(func() error { undone <- "second"; return nil })
			return sum, nil
		}),
		"fail": partner.On(func(*partner.Session, struct{}) (int, error) { return 0, errors.New("no") }),
	})
	c, err := partner.Dial(t.Context(), info.Control)
	if err != nil {
		t.Fatal(err)
	}
	var sum int
	if err := c.Ask("add", []int{1, 2, 3}, &sum); err != nil || sum != 6 {
		t.Errorf("%d, %v", sum, err)
	}
	for _, job := range []string{"fail", "dance"} {
		if err := c.Ask(job, struct{}{}, &sum); err == nil {
			t.Errorf("%s was done", job)
		}
	}
	if err := c.Ask("add", "no list", &sum); err == nil {
		t.Error("nonsense was added")
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if a, b := <-undone, <-undone; a != "second" || b != "first" {
		t.Errorf("%s was undone before %s", a, b)
	}
}

func TestMeterTellsOfBothProcesses(t *testing.T) {
	m := &partner.Meter{Control: benchtest.Serve(t, func(err error) { t.Error(err) }).Control}
	defer m.Close()
	busy := func(context.Context, time.Duration) (bench.Result, error) {
		for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); {
			// Uses the processor, and has its turn even on a busy machine.
		}
		r := bench.Result{Took: time.Second}
		r.Add(4, bench.MiB)
		return r, nil
	}
	r, err := m.Costs(busy)(t.Context(), 0)
	if err != nil || r.Cost.LocalCPU == nil || *r.Cost.LocalCPU <= 0 || *r.Cost.RemoteCPU <= 0 ||
		r.Cost.Allocs == nil || r.Cost.Copies == nil {
		t.Errorf("%+v, %v", r.Cost, err)
	}
	r, err = m.CPUs(busy)(t.Context(), 0)
	if err != nil || len(r.Extras) != 2 || r.Extras[0].Value < r.Extras[1].Value ||
		r.Extras[1].Value <= 0 {
		t.Errorf("%+v, %v", r.Extras, err)
	}
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	m = &partner.Meter{Control: dead.Addr().String()}
	if r, err := m.Costs(busy)(t.Context(), 0); err == nil {
		t.Errorf("%+v of nobody", r)
	}
}
