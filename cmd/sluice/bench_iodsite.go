package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/sluice-storage/sluice/bench"
	benchiod "github.com/sluice-storage/sluice/bench/iod"
	"github.com/sluice-storage/sluice/bench/partner"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
	"github.com/sluice-storage/sluice/stripe/logstore"
)

// iodSites starts servers for bench iod, each in a folder of its own.
type iodSites struct {
	dir  string
	open partner.Opener // of this process: places in shared memory have names of their own
	made atomic.Int64
}

// start is a benchiod.Starter.
func (s *iodSites) start(spec benchiod.Spec) (*benchiod.Site, error) {
	if s.dir == "" {
		return nil, errs.Newf(errs.Invalid, "bench-peer", "", "there is no folder for servers")
	}
	var undo bench.Undo
	dir := filepath.Join(s.dir, fmt.Sprintf("site%d", s.made.Add(1)))
	site, err := s.startIn(dir, spec, &undo)
	if err != nil {
		return nil, errors.Join(err, undo.Close())
	}
	site.Close = undo.Close
	return site, nil
}

func (s *iodSites) startIn(dir string, spec benchiod.Spec, undo *bench.Undo) (*benchiod.Site,
	error) {
	places, net, err := s.node(spec.Pace, undo)
	if err != nil {
		return nil, err
	}
	if spec.Kind != benchiod.Unifier {
		h, err := benchiod.NewNaive(net.Node, spec.Kind, dir, spec.Bytes)
		if err != nil {
			return nil, err
		}
		undo.Later(h.Close)
		srv, err := net.Serve(places, h, msg.ServeOptions{})
		if err != nil {
			return nil, err
		}
		undo.Later(func() error { return srv.Close(context.Background()) })
		return &benchiod.Site{Addrs: addrsOf(srv)}, nil
	}
	store, err := openSiteStore(dir, spec)
	if err != nil {
		return nil, err
	}
	undo.Later(store.Close)
	site := &benchiod.Site{}
	rand.Read(site.Key[:])
	srv, err := serveIod(net, iodParts{id: 1, key: site.Key, store: store, listen: places,
		plan: memoryPlan{cache: spec.Cache}, writeBack: spec.WriteBack, log: newLogger()})
	if err != nil {
		return nil, err
	}
	undo.Later(func() error { return srv.close(context.Background()) })
	site.Addrs, site.Counts = addrsOf(srv.server), srv.handler.Counts
	return site, nil
}

// paced is a provider, its sockets no faster than pace.
func (s *iodSites) paced(name string, pace int64) (partner.Domain, error) {
	if name != plainProvider || pace == 0 {
		return s.open(name)
	}
	d, err := tcp.Open(tcp.Options{PaceBytes: pace})
	return partner.Domain{Domain: d, Listen: net.JoinHostPort("127.0.0.1", "0")}, err
}

// node is one on all providers of bench iod, and the places where it can listen.
func (s *iodSites) node(pace int64, undo *bench.Undo) (places string, n *peer.Network, err error) {
	providers := &peer.Providers{Limits: iodLimits()}
	var list []string
	for _, name := range iodProviders() {
		d, err := s.paced(name, pace)
		if err != nil {
			return "", nil, err
		}
		undo.Later(d.Domain.Close)
		providers.Domains = append([]fabric.Domain{d.Domain}, providers.Domains...)
		list = append(list, name+":"+d.Listen)
	}
	if n, err = peer.New(providers, msg.Options{}); err != nil {
		return "", nil, err
	}
	undo.Later(n.Close)
	return strings.Join(list, ","), n, nil
}

// addrsOf are the places where a server listens, by provider.
func addrsOf(s *msg.Server) map[string]string {
	all := map[string]string{}
	for _, p := range s.Places() {
		all[p.Domain.Caps().Provider] = p.Addr
	}
	return all
}

// siteLog is the size of a store's log for a bench: as large as that of a server of a cluster of
// four.
const siteLog = 32 << 20

// openSiteStore makes a store, of several throttled members where that is asked for.
func openSiteStore(dir string, spec benchiod.Spec) (stripe.Engine, error) {
	members := int64(max(spec.Members, 1))
	p := logstore.PathOptions{LogBytes: siteLog, Bytes: 4*spec.Bytes/members + 2*siteLog,
		UnitBytes: min(256<<10, (1<<20)/members), Logger: newLogger()} // 1 MiB is of all members
	for i := range members {
		p.Paths = append(p.Paths, filepath.Join(dir, fmt.Sprintf("member%d", i+1)))
	}
	o, err := siteDevices(p, spec.Memory)
	if err != nil {
		return nil, err
	}
	if spec.Rate > 0 {
		for i, d := range o.Devices {
			o.Devices[i] = device.Throttled(d, device.ThrottleOptions{BytesPerSecond: spec.Rate})
		}
	}
	return logstore.Open(o)
}

// siteDevices makes the members of a store: files, or memory.
func siteDevices(p logstore.PathOptions, memory bool) (logstore.Options, error) {
	if !memory {
		if _, err := logstore.Init(p); err != nil {
			return logstore.Options{}, err
		}
		return logstore.Devices(p)
	}
	o := logstore.Options{LogBytes: p.LogBytes, UnitBytes: p.UnitBytes, Logger: p.Logger}
	for _, path := range p.Paths {
		o.Devices = append(o.Devices, device.NewMemory(path, p.Bytes))
	}
	_, err := logstore.Create(o)
	return o, err
}
