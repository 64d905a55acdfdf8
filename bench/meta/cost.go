package meta

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/partner"
)

// spent is what the processes of a cluster, and this one, have used so far.
type spent struct {
	client, service, servers time.Duration
	names, data              uint64 // requests
}

// count asks for requests, which costs processor time; clock reads that time.
func (u *spent) count(ctx context.Context, s *Site) (err error) {
	u.names, u.data, err = s.Requests(ctx)
	return err
}

func (u *spent) clock(s *Site) (err error) {
	if u.service, u.servers, err = s.CPU(); err != nil {
		return err
	}
	u.client, err = partner.OwnCPU()
	return err
}

// costs measures, and what an operation costs. The kernel counts the processor time of others in
// hundredths of a second: of short measurements it says little.
func (s *Site) costs(ctx context.Context, measure func() (bench.Result, error)) (
	r bench.Result, err error) {
	var before, now spent
	if err := before.count(ctx, s); err != nil {
		return r, err
	}
	if err := before.clock(s); err != nil {
		return r, err
	}
	if r, err = measure(); err != nil || r.Ops == 0 {
		return r, err
	}
	if err := now.clock(s); err != nil {
		return r, err
	}
	if err := now.count(ctx, s); err != nil {
		return r, err
	}
	ops := float64(r.Ops)
	us := func(now, before time.Duration) float64 { return (now - before).Seconds() * 1e6 / ops }
	client, service, servers := us(now.client, before.client), us(now.service, before.service),
		us(now.servers, before.servers)
	r.Extras = append(r.Extras,
		bench.Extra{Metric: bench.TotalCPU, Value: client + service + servers},
		bench.Extra{Metric: bench.ClientCPU, Value: client},
		bench.Extra{Metric: bench.ServiceCPU, Value: service},
		bench.Extra{Metric: bench.ServersCPU, Value: servers},
		bench.Extra{Metric: bench.NameMsgs, Value: float64(now.names-before.names) / ops},
		bench.Extra{Metric: bench.DataMsgs, Value: float64(now.data-before.data) / ops})
	return r, nil
}
