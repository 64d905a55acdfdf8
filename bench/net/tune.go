package net

import (
	"context"
	"errors"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/partner"
	"github.com/sluice-storage/sluice/bench/tune"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/msg"
	measure "github.com/sluice-storage/sluice/msg/tune"
)

// Tune measures where one protocol gives way to the next, on every provider.
func (b *Bench) Tune(ctx context.Context, opts measure.Options) ([]tune.Result, error) {
	var all []tune.Result
	for _, p := range b.Providers {
		r, err := b.tune(ctx, p, opts)
		if err != nil {
			return nil, errs.Wrap("bench tune", p, err)
		}
		all = append(all, *r)
	}
	return all, nil
}

func (b *Bench) tune(ctx context.Context, provider string, opts measure.Options) (r *tune.Result,
	err error) {
	var undo bench.Undo
	defer func() { err = errors.Join(err, undo.Close()) }()
	args := serveArgs{Provider: provider}
	control, err := partner.Dial(ctx, b.Peer.Control)
	if err != nil {
		return nil, err
	}
	undo.Later(control.Close)
	var addr string
	if err := control.Ask(doTune, args, &addr); err != nil {
		return nil, err
	}
	d, err := args.open(b.Open)
	if err != nil {
		return nil, err
	}
	undo.Later(d.Domain.Close)
	node, err := msg.NewNode(measure.Node(args.options(d)))
	if err != nil {
		return nil, err
	}
	undo.Later(node.Close)
	conn, err := node.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	r = &tune.Result{Provider: provider}
	opts.Source = d.Source
	opts.Seen = func(s measure.Sample) {
		r.Samples = append(r.Samples, tune.Sample{Bytes: s.Bytes, Protocol: s.Protocol, Unit: s.Unit,
			Micros: float64(s.Took.Nanoseconds()) / 1e3})
	}
	r.Limits, err = measure.Measure(ctx, conn, opts)
	return r, err
}
