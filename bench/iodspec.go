package bench

import (
	"context"
	"encoding/hex"
	"errors"
	"net"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/iod/remote"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// The servers that bench iod compares.
const (
	IodUnifier = "unifier" // ours: cache buffers are network buffers are disk buffers
	IodNormal  = "normal"  // reads a file into a buffer, copies that into another one, sends it
	IodMmap    = "mmap"    // maps what a request names, sends from there
	IodKept    = "kept"    // sends from a mapping of the whole file that stays
)

// IodSpec is what the other process is asked to start.
type IodSpec struct {
	Kind      string `json:"kind"`
	Bytes     int64  `json:"bytes"`                // of the data that will be there
	Cache     int64  `json:"cache,omitempty"`      // memory of the cache in bytes
	Members   int    `json:"members,omitempty"`    // of the store; 0: one
	Rate      int64  `json:"rate,omitempty"`       // bytes a second of each member; 0: the disk's own
	Pace      int64  `json:"pace,omitempty"`       // bytes a second of each tcp socket; 0: any
	Memory    bool   `json:"memory,omitempty"`     // members are in memory: faster than any disk here
	Cold      bool   `json:"cold,omitempty"`       // the data is written past the cache
	WriteBack bool   `json:"write_back,omitempty"` // of the cache
}

// IodSite is a server that was started.
type IodSite struct {
	Addrs  map[string]string  // where to reach it, by provider
	Key    capability.Key     // what it checks capabilities with
	Counts func() []iod.Count // its numbers; nil: it has none
	Close  func() error
}

// IodStarter starts a server in this process.
type IodStarter func(IodSpec) (*IodSite, error)

// ServeIod is ServeNet that starts servers for bench iod, too.
func ServeIod(ctx context.Context, ln net.Listener, open NetOpener, start IodStarter,
	note func(error)) {
	serveControl(ln, func() *netPeer {
		return &netPeer{ctx: ctx, open: open, start: start, note: note}
	})
}

// What bench iod has the other process do.
const (
	doIod    = "iod"        // start a server
	doCounts = "iod-counts" // tell its numbers
)

// siteInfo is what the other process tells of a server.
type siteInfo struct {
	Addrs map[string]string `json:"addrs,omitempty"`
	Key   string            `json:"key,omitempty"`
}

// iod starts a server, or tells the numbers of the one that was started.
func (p *netPeer) iod(s *spec) (a answer, err error) {
	switch {
	case s.Do == doCounts && p.site != nil && p.site.Counts != nil:
		a.Counts = p.site.Counts()
	case s.Do == doCounts:
	case p.start == nil || s.Iod == nil || p.site != nil:
		err = errs.Newf(errs.Invalid, "bench peer", s.Do, "no server can be started")
	default:
		if p.site, err = p.start(*s.Iod); err == nil {
			p.later(p.site.Close)
			a.Site = siteInfo{p.site.Addrs, hex.EncodeToString(p.site.Key[:])}
		}
	}
	return a, err
}

// site is this side of a server in the other process: it is started, and filled with data, when it
// is first used, and ended when the last contender that needs it is closed.
type site struct {
	b    *Iod
	spec IodSpec
	uses int // contenders that are not closed

	control *control
	info    siteInfo
	key     capability.Key
	links   map[string]*siteLink
}

// siteLink is a connection to the server by one provider.
type siteLink struct {
	domain NetDomain
	node   *msg.Node
	pool   *peer.Pool
	remote *remote.Remote
	kept   *mem.Arena // of writes that are not synced; nil: none yet
}

// keep makes memory that the provider reaches, as package client does.
func (l *siteLink) keep(bytes int) (a *mem.Arena, err error) {
	if a, err = mem.NewArena(bytes, l.domain.Source); err != nil {
		return nil, err
	}
	if err := l.node.Attach(a); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	l.kept = a
	return a, nil
}

func (s *site) open(ctx context.Context) (err error) {
	if s.control != nil {
		return nil
	}
	if s.control, err = dialControl(ctx, s.b.Net.Control); err != nil {
		return err
	}
	a, err := s.control.ask(spec{Do: doIod, Iod: &s.spec})
	if err != nil {
		return errors.Join(err, s.close())
	}
	b, err := hex.DecodeString(a.Site.Key)
	if err != nil || len(b) != len(s.key) {
		return errors.Join(errs.Newf(errs.Protocol, "bench iod", "", "the peer's key is %q", a.Site.Key),
			s.close())
	}
	s.info, s.key, s.links = a.Site, capability.Key(b), map[string]*siteLink{}
	if err := s.fill(ctx); err != nil {
		return errors.Join(err, s.close())
	}
	return nil
}

// link connects by a provider.
func (s *site) link(ctx context.Context, provider string) (*siteLink, error) {
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	if l := s.links[provider]; l != nil {
		return l, nil
	}
	addr := s.info.Addrs[provider]
	if addr == "" {
		return nil, errs.Newf(errs.Unsupported, "bench iod", provider, "the server is not there")
	}
	d, err := s.b.Net.Open(provider)
	if err != nil {
		return nil, err
	}
	l := &siteLink{domain: d}
	if l.node, err = msg.NewNode(msg.Options{Domain: d.Domain, Limits: s.b.Limits}); err != nil {
		return nil, errors.Join(err, l.close())
	}
	l.pool = peer.NewPool(l.node, func(context.Context, uint32) (string, error) { return addr, nil })
	l.remote = remote.New(l.pool, remote.Options{Arena: l.keep})
	s.links[provider] = l
	return l, nil
}

func (l *siteLink) close() error {
	var failed []error
	if l.remote != nil {
		failed = append(failed, l.remote.Close())
	}
	if l.pool != nil {
		failed = append(failed, l.pool.Close())
	}
	if l.node != nil {
		failed = append(failed, l.node.Close())
	}
	if l.kept != nil {
		l.node.Detach(l.kept)
		failed = append(failed, l.kept.Close())
	}
	return errors.Join(append(failed, l.domain.Domain.Close())...)
}

// fillBytes is how much is written at a time where data is made.
const fillBytes = mib

// fill writes the data, all of it different, and syncs.
func (s *site) fill(ctx context.Context) error {
	l, err := s.link(ctx, s.b.Providers[0])
	if err != nil {
		return err
	}
	buf := make([]byte, fillBytes)
	noise(buf)
	for off := int64(0); off < s.spec.Bytes; off += fillBytes {
		buf[0], buf[1], buf[2] = byte(off>>20), byte(off>>28), byte(off>>36)
		m := &msg.Memory{Windows: window(buf), Access: seg.Contig(0, fillBytes)}
		t := s.target()
		t.How.NoSums = true // servers that are not ours know none
		if s.spec.Cold {
			t.How.Mode = iod.Direct
		}
		_, err := l.remote.Write(ctx, t, seg.Contig(off, fillBytes), m, stripe.Volatile)
		if err != nil {
			return errs.Wrap("bench iod", "fill", err)
		}
	}
	_, err = l.remote.Sync(ctx, s.target())
	return errs.Wrap("bench iod", "fill", err)
}

// target is the object, by a capability that is signed for each measurement.
func (s *site) target() iod.Target {
	c := capability.Capability{File: 1, Gen: 1, Rights: capability.Read | capability.Write, Server: 1,
		Expiry: time.Now().Add(capability.TTLMax)}
	return iod.Target{Server: 1, Object: stripe.ObjectID{File: 1, Gen: 1}, Cap: s.key.Sign(&c),
		Stamp: wire.Stamp{Gen: 1}}
}

// counts are the server's numbers.
func (s *site) counts() (map[string]float64, error) {
	a, err := s.control.ask(spec{Do: doCounts})
	all := map[string]float64{}
	for _, c := range a.Counts {
		all[c.Name] = float64(c.Value)
	}
	return all, err
}

// release is of a contender that is through.
func (s *site) release() error {
	s.uses--
	if s.uses > 0 {
		return nil
	}
	return s.close()
}

func (s *site) close() error {
	var failed []error
	for _, l := range s.links {
		failed = append(failed, l.close())
	}
	failed = append(failed, s.control.close())
	s.links, s.control = nil, nil
	return errors.Join(failed...)
}
