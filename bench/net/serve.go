package net

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/sluice-storage/sluice/bench/partner"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/msg/tune"
	"github.com/sluice-storage/sluice/peer"
)

// What the other process does for this package.
const (
	doServe  = "serve"  // serve package msg, and tell where
	doTune   = "tune"   // serve it for tune.Measure
	doCopy   = "copy"   // copy into shared memory, see copy.go
	doFar    = "far"    // be the far side of package mover, see mover.go
	doLadder = "ladder" // serve package msg on several providers
)

// serveArgs are a node of package msg, the same one at both ends.
type serveArgs struct {
	Provider string       `json:"provider"`
	Progress msg.Progress `json:"progress,omitempty"`
	Asleep   bool         `json:"asleep,omitempty"`  // queues sleep at once
	Metered  bool         `json:"metered,omitempty"` // a meter stands before the provider
	Touch    bool         `json:"touch,omitempty"`   // handlers look at what they took
	Bytes    int          `json:"bytes,omitempty"`   // of the largest request or reply
	Walk     bool         `json:"walk,omitempty"`    // see Load
	Limits   msg.Limits   `json:"limits"`            // what is not 0 counts
	Service  int          `json:"service,omitempty"` // microseconds of work on each request
	Workers  int          `json:"workers,omitempty"` // that work at once; 0: as many as come
}

// bytesMax and serviceMax bound what a contender may ask for.
const (
	bytesMax   = 64 << 20
	serviceMax = 1e6
)

// checkBytes refuses what would need more memory than any contender does.
func checkBytes(n int) error {
	if n < 0 || n > bytesMax {
		return errs.Newf(errs.Invalid, "bench peer", "", "%d bytes", n)
	}
	return nil
}

// open opens the provider, with what stands before it.
func (a *serveArgs) open(opener partner.Opener) (partner.Domain, error) {
	if a.Metered {
		opener = opener.Metered
	}
	d, err := opener(a.Provider)
	if err == nil && a.Asleep {
		d.Domain = drowsy{d.Domain}
	}
	return d, err
}

func (a *serveArgs) options(d partner.Domain) msg.Options {
	return msg.Options{Domain: d.Domain, Progress: a.Progress, InlineMax: a.Limits.InlineMax,
		EagerMax: a.Limits.EagerMax}
}

// drowsy is a domain whose queues never poll before they sleep.
type drowsy struct{ fabric.Domain }

// NewCQ implements fabric.Domain.
func (d drowsy) NewCQ(opts fabric.CQOptions) (fabric.CQ, error) {
	opts.Spin = -1
	return d.Domain.NewCQ(opts)
}

// serve is a server of package msg.
func serve(s *partner.Session, a *serveArgs, open partner.Opener) (string, error) {
	if err := checkBytes(a.Bytes); err != nil {
		return "", err
	}
	if a.Service < 0 || a.Service > serviceMax || a.Workers < 0 {
		return "", errs.Newf(errs.Invalid, "bench peer", "", "%d us, %d workers", a.Service, a.Workers)
	}
	d, err := a.open(open)
	if err != nil {
		return "", err
	}
	s.Later(d.Domain.Close)
	node, err := msg.NewNode(a.options(d))
	if err != nil {
		return "", err
	}
	h, err := newHandler(node, a)
	if err != nil {
		return "", errors.Join(err, node.Close())
	}
	s.Later(h.close) // after the node
	s.Later(node.Close)
	return listen(node, d.Listen, h, msg.ServeOptions{MaxCalls: a.Workers})
}

func listen(node *msg.Node, place string, h msg.Handler, o msg.ServeOptions) (string, error) {
	srv, err := node.Serve(place, h, o)
	if err != nil {
		return "", err
	}
	return srv.Addr(), nil
}

// serveTuning is a server for tune.Measure.
func serveTuning(s *partner.Session, a *serveArgs, open partner.Opener) (string, error) {
	d, err := a.open(open)
	if err != nil {
		return "", err
	}
	s.Later(d.Domain.Close)
	node, err := msg.NewNode(tune.Node(a.options(d)))
	if err != nil {
		return "", err
	}
	sink, err := tune.NewSink(node, tune.Options{})
	if err != nil {
		return "", errors.Join(err, node.Close())
	}
	s.Later(sink.Close) // after the node
	s.Later(node.Close)
	return listen(node, d.Listen, sink, msg.ServeOptions{})
}

// ladderArgs are providers: the one that every client knows, and those above it, best first.
type ladderArgs struct {
	Base  string   `json:"base"`
	Above []string `json:"above"`
}

// serveLadder is a server that can be reached by several providers, the last step first.
func serveLadder(s *partner.Session, a *ladderArgs, open partner.Opener) (string, error) {
	providers := &peer.Providers{}
	var places []string
	for _, name := range append(slices.Clone(a.Above), a.Base) {
		d, err := open(name)
		if err != nil {
			return "", err
		}
		s.Later(d.Domain.Close)
		providers.Domains = append(providers.Domains, d.Domain)
		places = append(places, name+":"+d.Listen)
	}
	slices.Reverse(places)
	network, err := peer.New(providers, msg.Options{})
	if err != nil {
		return "", err
	}
	s.Later(network.Close)
	srv, err := network.Serve(strings.Join(places, ","), EchoHandler(), msg.ServeOptions{})
	if err != nil {
		return "", err
	}
	return network.AddrOf(srv), nil
}

// EchoHandler answers every request with its own body.
func EchoHandler() msg.Handler {
	return msg.HandlerFunc(func(_ context.Context, c *msg.Call) {
		_ = c.Reply(c.Body(), 0) // a client that is gone does not care
	})
}
