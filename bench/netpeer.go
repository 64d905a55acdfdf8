package bench

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"runtime"
	"slices"
	"strings"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/msg/tune"
	"github.com/sluice-storage/sluice/peer"
)

// ServeNet is the other process of bench net: it does what contenders ask for, each on a connection
// of its own, and undoes it when that ends. note is told what fails on the way. It returns when the
// listener is closed.
func ServeNet(ctx context.Context, ln net.Listener, open NetOpener, note func(error)) {
	serveControl(ln, func() *netPeer { return &netPeer{ctx: ctx, open: open, note: note} })
}

// serveControl answers with a peer of its own on each connection.
func serveControl(ln net.Listener, make func() *netPeer) {
	accept(ln, func(conn net.Conn) error {
		p := make()
		defer func() {
			if err := p.close(); err != nil {
				p.note(err)
			}
		}()
		dec, enc := json.NewDecoder(conn), json.NewEncoder(conn)
		for {
			var s spec
			if err := dec.Decode(&s); err != nil {
				return err
			}
			a, err := p.do(&s)
			if err != nil {
				a.Error = err.Error()
			}
			if err := enc.Encode(a); err != nil {
				return err
			}
		}
	})
}

// netPeer is what was opened for one contender.
type netPeer struct {
	ctx  context.Context
	open NetOpener
	note func(error)
	undo []func() error

	start IodStarter // nil: of bench net, which needs none
	site  *IodSite
}

// later notes what is to be undone, the last first.
func (p *netPeer) later(fn func() error) { p.undo = append(p.undo, fn) }

func (p *netPeer) close() error {
	var failed []error
	for _, fn := range slices.Backward(p.undo) {
		failed = append(failed, fn())
	}
	p.undo = nil
	return errors.Join(failed...)
}

// netBytesMax bounds what a contender may ask for.
const netBytesMax = 64 << 20

func (p *netPeer) do(s *spec) (a answer, err error) {
	if s.Bytes < 0 || s.Bytes > netBytesMax {
		return a, errs.Newf(errs.Invalid, "bench peer", s.Do, "%d bytes", s.Bytes)
	}
	switch s.Do {
	case doStats:
		a.Usage, err = ownUsage()
	case doServe, doTune:
		a.Addr, err = p.serve(s)
	case doFabric:
		a.Addr, err = p.fabric(s)
	case doLadder:
		a.Addr, err = p.ladder(s)
	case doCopy:
		err = p.copies(s)
	case doFar:
		err = p.far(s)
	case doIod, doCounts:
		a, err = p.iod(s)
	default:
		err = errs.Newf(errs.Invalid, "bench peer", s.Do, "no such thing to do")
	}
	return a, err
}

// ownUsage is that of this process. Package runtime/metrics would tell of allocations some time
// later, by hundreds.
func ownUsage() (usage, error) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	cpu, err := OwnCPU()
	return usage{CPU: cpu, Copied: mem.Copied(), Allocs: m.Mallocs}, err
}

// serve is a server of package msg.
func (p *netPeer) serve(s *spec) (string, error) {
	d, err := s.open(p.open)
	if err != nil {
		return "", err
	}
	p.later(d.Domain.Close)
	opts := s.options(d, "")
	node, err := msg.NewNode(opts)
	if err != nil {
		return "", err
	}
	p.later(node.Close)
	var h msg.Handler = tune.Sink{}
	if s.Do == doServe {
		works, err := newNetHandler(node, s)
		if err != nil {
			return "", err
		}
		p.undo = slices.Insert(p.undo, len(p.undo)-1, works.close) // after the node
		h = works
	}
	srv, err := node.Serve(d.Listen, h, msg.ServeOptions{MaxCalls: s.Workers})
	if err != nil {
		return "", err
	}
	return srv.Addr(), nil
}

// fabric is the provider without package msg.
func (p *netPeer) fabric(s *spec) (string, error) {
	d, err := s.open(p.open)
	if err != nil {
		return "", err
	}
	p.later(d.Domain.Close)
	ln, err := d.Domain.Connector().Listen(d.Listen)
	if err != nil {
		return "", err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ServeFabric(p.ctx, d.Domain, ln, p.note)
	}()
	p.later(func() error {
		err := ln.Close()
		<-done
		return err
	})
	return ln.Addr().String(), nil
}

// ladder is a server that can be reached by several providers, the last step first.
func (p *netPeer) ladder(s *spec) (string, error) {
	providers := &peer.Providers{}
	var places []string
	for _, name := range append(slices.Clone(s.Also), s.Provider) {
		d, err := p.open(name)
		if err != nil {
			return "", err
		}
		p.later(d.Domain.Close)
		providers.Domains = append(providers.Domains, d.Domain)
		places = append(places, name+":"+d.Listen)
	}
	slices.Reverse(places)
	net, err := peer.New(providers, msg.Options{})
	if err != nil {
		return "", err
	}
	p.later(net.Close)
	srv, err := net.Serve(strings.Join(places, ","), EchoHandler(), msg.ServeOptions{})
	if err != nil {
		return "", err
	}
	return net.AddrOf(srv), nil
}
