package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/bench"
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
	open bench.NetOpener // of this process: places in shared memory have names of their own

	mu      sync.Mutex
	made    int
	running int
}

// begin counts a server and names its folder.
func (s *iodSites) begin() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	s.running++
	return filepath.Join(s.dir, fmt.Sprintf("site%d", s.made))
}

func (s *iodSites) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
}

func (s *iodSites) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// wait returns when all servers are closed: their connections end with the bench.
func (s *iodSites) wait() error {
	for end := time.Now().Add(peerEnd); s.left() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return errPeerEnd(s.left())
		}
	}
	return nil
}

// undoing closes what was opened, the last first.
type undoing []func() error

func (u *undoing) add(fn func() error) { *u = append(*u, fn) }

func (u *undoing) run() error {
	var failed []error
	for i := len(*u) - 1; i >= 0; i-- {
		failed = append(failed, (*u)[i]())
	}
	*u = nil
	return errors.Join(failed...)
}

// start is a bench.IodStarter.
func (s *iodSites) start(spec bench.IodSpec) (*bench.IodSite, error) {
	var undo undoing
	dir := s.begin()
	undo.add(func() error { s.end(); return nil })
	site, err := s.startIn(dir, spec, &undo)
	if err != nil {
		return nil, errors.Join(err, undo.run())
	}
	site.Close = undo.run
	return site, nil
}

func (s *iodSites) startIn(dir string, spec bench.IodSpec, undo *undoing) (*bench.IodSite,
	error) {
	places, net, err := s.node(spec.Pace, undo)
	if err != nil {
		return nil, err
	}
	if spec.Kind != bench.IodUnifier {
		h, err := bench.NewNaive(net.Node, spec.Kind, dir, spec.Bytes)
		if err != nil {
			return nil, err
		}
		undo.add(h.Close)
		srv, err := net.Serve(places, h, msg.ServeOptions{})
		if err != nil {
			return nil, err
		}
		undo.add(func() error { return srv.Close(context.Background()) })
		return &bench.IodSite{Addrs: addrsOf(srv)}, nil
	}
	store, err := openSiteStore(dir, spec)
	if err != nil {
		return nil, err
	}
	undo.add(store.Close)
	site := &bench.IodSite{}
	rand.Read(site.Key[:])
	srv, err := serveIod(net, iodParts{id: 1, key: site.Key, store: store, listen: places,
		plan: memoryPlan{cache: spec.Cache}, writeBack: spec.WriteBack, log: newLogger()})
	if err != nil {
		return nil, err
	}
	undo.add(func() error { return srv.close(context.Background()) })
	site.Addrs, site.Counts = addrsOf(srv.server), srv.handler.Counts
	return site, nil
}

// paced is a provider, its sockets no faster than pace.
func (s *iodSites) paced(name string, pace int64) (bench.NetDomain, error) {
	if name != plainProvider || pace == 0 {
		return s.open(name)
	}
	d, err := tcp.Open(tcp.Options{PaceBytes: pace})
	return bench.NetDomain{Domain: d, Listen: net.JoinHostPort("127.0.0.1", "0")}, err
}

// node is one on all providers of bench iod, and the places where it can listen.
func (s *iodSites) node(pace int64, undo *undoing) (places string, n *peer.Network, err error) {
	providers := &peer.Providers{Limits: iodLimits()}
	var list []string
	for _, name := range iodProviders() {
		d, err := s.paced(name, pace)
		if err != nil {
			return "", nil, err
		}
		undo.add(d.Domain.Close)
		providers.Domains = append([]fabric.Domain{d.Domain}, providers.Domains...)
		list = append(list, name+":"+d.Listen)
	}
	if n, err = peer.New(providers, msg.Options{}); err != nil {
		return "", nil, err
	}
	undo.add(n.Close)
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
func openSiteStore(dir string, spec bench.IodSpec) (stripe.Engine, error) {
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
