package meta

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-storage/sluice/bench"
)

// bigClients is the case of many clients that do nothing but stay: it is what a service costs that
// everybody has mounted.
const bigClients = "big-clients"

// Crowd is many clients of one service, each with a connection and a session of its own that it
// keeps alive, as a mount does that nobody uses.
type Crowd interface {
	Beats() uint64 // how often they were heard of, all together
	Interval() time.Duration
	Close() error
}

// beatsMin is for how many intervals a crowd is looked at: the kernel counts the processor time of
// others in hundredths of a second.
const beatsMin = 4

// ClientCases are those about many clients.
func (b *Bench) ClientCases() []bench.Case {
	return []bench.Case{{Bench: "meta", Name: bigClients, Metric: bench.ClientMemory, Depth: b.Clients,
		About: fmt.Sprintf("memory of the service for each of %d clients that keep their sessions, and "+
			"the processor time that this takes it in each interval", b.Clients),
		Contenders: []bench.Contender{{Provider: Service, Measure: once(b.crowd)}}}}
}

func (b *Bench) crowd(ctx context.Context, d time.Duration) (r bench.Result, err error) {
	s, err := b.open(ctx)
	if err != nil {
		return r, err
	}
	before, err := s.Memory()
	if err != nil {
		return r, err
	}
	c, err := s.Crowd(ctx, b.Clients)
	if err != nil {
		return r, err
	}
	defer func() {
		if cerr := c.Close(); err == nil {
			err = cerr
		}
	}()
	if err := rest(ctx, c.Interval()); err != nil { // until nobody begins any more
		return r, err
	}
	beats, begin := c.Beats(), time.Now()
	cpu, _, err := s.CPU()
	if err != nil {
		return r, err
	}
	if err := rest(ctx, max(d, beatsMin*c.Interval())); err != nil {
		return r, err
	}
	now, _, err := s.CPU()
	if err != nil {
		return r, err
	}
	after, err := s.Memory()
	if err != nil {
		return r, err
	}
	r.Took, r.Ops = time.Since(begin), int(c.Beats()-beats)
	intervals := r.Took.Seconds() / c.Interval().Seconds()
	r.Value = float64(after-before) / 1024 / float64(b.Clients)
	r.Extras = []bench.Extra{{Metric: bench.Memory, Value: float64(after) / mib},
		{Metric: bench.BeatCPU, Value: (now - cpu).Seconds() * 1e3 / intervals},
		{Metric: bench.Beats, Value: float64(r.Ops) / intervals}}
	return r, nil
}

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// ClientFigureCases are those that ClientPromises are made of; both are part of
// docs/figures/hosts.md.
func ClientFigureCases() []string { return []string{bigClients} }

// ClientPromises are what is asked of a service with many clients.
func (b *Bench) ClientPromises() []bench.Promise {
	name := func(text string) string { return fmt.Sprintf("%d clients: %s", b.Clients, text) }
	most := func(text, metric string, limit float64, unit string) bench.Promise {
		return bench.Promise{Name: name(text), Bound: bench.Most, Limit: limit, Unit: unit,
			Of: bench.Value(bigClients, Service, metric)}
	}
	return []bench.Promise{
		most("memory of the service, for each", "", clientKiB, "KiB"),
		most("memory of the service", bench.Memory, 60+float64(b.Clients)*clientKiB/1024, "MiB"),
		{Name: name("each is heard of in every interval"), Bound: bench.Least,
			Limit: 0.9 * float64(b.Clients), Unit: "/interval",
			Of: bench.Value(bigClients, Service, bench.Beats)},
		most("processor time of the service, an interval", bench.BeatCPU,
			float64(b.Clients)*clientBeatMs, "ms"),
	}
}

// What a client may cost the service: its connection's receive and send buffers and its session, in
// memory, and a request that waits, in processor time.
const (
	clientKiB    = 512
	clientBeatMs = 0.2
)
