package net

import (
	"github.com/sluice-storage/sluice/bench"
	netfabric "github.com/sluice-storage/sluice/bench/fabric"
	"github.com/sluice-storage/sluice/msg"
)

// This file is where the time of an 8-byte round trip goes. Each layer is measured on top of those
// before it.

// layer is a round trip with one thing more than the one before it.
type layer struct {
	name    string
	fabric  bool // the fabric alone, without package msg
	header  bool // with a wire.Header before the message, written and read at both sides
	metered bool // through a hook that wraps the provider and counts
	thread  bool // polled by a thread of its own, handled by a worker
}

const (
	layerBase = "base" // the fabric alone: a message of 8 bytes there and back
	layerMsg  = "msg"  // package msg on the provider itself, without a hook
)

func layers() []layer {
	return []layer{
		{name: layerBase, fabric: true},
		{name: "header", fabric: true, header: true},
		{name: "adaption", fabric: true, header: true, metered: true},
		{name: "protocol", metered: true}, // credits, slots, deadlines, a handler
		{name: "threading", metered: true, thread: true},
		{name: layerMsg},
	}
}

// layers is a case with all layers of all providers. spin makes all sides poll.
func (b *Bench) layers(spin bool) bench.Case {
	name, about := "layers-8", "an 8-byte round trip, layer by layer"
	if spin {
		name, about = name+"-spin", about+", polling"
	}
	c := newCase(name, about, PingBytes, 1, bench.Latency)
	for _, p := range b.Providers {
		for _, l := range layers() {
			by := b.layer(p, l, spin)
			by.Provider, by.Ceiling = p+", "+l.name, p+", "+layerBase
			c.Add(by)
		}
	}
	return c
}

func (b *Bench) layer(provider string, l layer, spin bool) bench.Contender {
	if l.fabric {
		p := &netfabric.Provider{Name: provider, Open: b.Open, Control: b.Peer.Control,
			Metered: l.metered}
		return netfabric.Pings(p, PingBytes, l.header, spin)
	}
	load := Load{Op: OpEcho, Depth: 1}
	load.args.Metered = l.metered
	switch {
	case l.thread:
		load.args.Progress = msg.ProgressThread
	case spin:
		load.args.Progress = msg.ProgressPoll
	}
	return b.Contender(provider, "", "", load)
}
