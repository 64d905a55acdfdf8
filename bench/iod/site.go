package iod

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/net"
	"github.com/sluice-storage/sluice/bench/partner"
	"github.com/sluice-storage/sluice/bench/store"
	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/iod/remote"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

const (
	kib = bench.KiB
	mib = bench.MiB
)

// window is a list of one piece.
func window(b []byte) []fabric.Sge { return []fabric.Sge{{Buf: b}} }

// The servers that are compared.
const (
	Unifier = "unifier" // ours: cache buffers are network buffers are disk buffers
	Normal  = "normal"  // reads a file into a buffer, copies that into another one, sends it
	Mmap    = "mmap"    // maps what a request names, sends from there
	Kept    = "kept"    // sends from a mapping of the whole file that stays
)

// Spec is what the other process is asked to start.
type Spec struct {
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

// atNetPace makes the members of a server together as fast as its network. Where that is tcp, the
// kernel paces the server's sockets to what four slow disks do: two cores have the time to move
// that much from disks and through sockets at once, as hosts with faster networks have. Shared
// memory cannot be paced; its members are in memory, faster than any disk here.
func (s *Spec) atNetPace(provider string) {
	rate := int64(800 * mib)
	if s.Memory = provider == net.Shm; s.Memory {
		rate = 4096 * mib
	} else {
		s.Pace = rate
	}
	s.Rate = rate / int64(s.Members)
}

// Site is a server that was started.
type Site struct {
	Addrs  map[string]string  // where to reach it, by provider
	Key    capability.Key     // what it checks capabilities with
	Counts func() []iod.Count // its numbers; nil: it has none
	Close  func() error
}

// Starter starts a server in this process.
type Starter func(Spec) (*Site, error)

// What the other process does for this package.
const (
	doStart  = "iod"        // start a server
	doCounts = "iod-counts" // tell the numbers of the one that was started
)

// Jobs are what the other process does for this package. Without a starter it starts nothing.
func Jobs(start Starter) partner.Jobs {
	return partner.Jobs{
		doStart: partner.On(func(s *partner.Session, spec Spec) (siteInfo, error) {
			if start == nil || s.Held != nil {
				return siteInfo{}, errs.Newf(errs.Invalid, "bench peer", doStart, "nothing can be started")
			}
			at, err := start(spec)
			if err != nil {
				return siteInfo{}, err
			}
			s.Held = at
			s.Later(at.Close)
			return siteInfo{at.Addrs, hex.EncodeToString(at.Key[:])}, nil
		}),
		doCounts: partner.On(func(s *partner.Session, _ struct{}) ([]iod.Count, error) {
			if at, ok := s.Held.(*Site); ok && at.Counts != nil {
				return at.Counts(), nil
			}
			return nil, nil
		}),
	}
}

// siteInfo is what the other process tells of a server.
type siteInfo struct {
	Addrs map[string]string `json:"addrs"`
	Key   string            `json:"key"`
}

// site is this side of a server in the other process: it is started, and filled with data, when it
// is first used, and ended when the last contender that needs it is closed.
type site struct {
	net    *net.Bench
	limits map[string]msg.Limits
	spec   Spec
	uses   int // contenders that are not closed

	undo    bench.Undo
	control *partner.Conn
	info    siteInfo
	key     capability.Key
	links   map[string]*siteLink
}

// siteLink is a connection to the server by one provider.
type siteLink struct {
	domain partner.Domain
	node   *msg.Node
	remote *remote.Remote
}

// arena is memory that the provider reaches, as package client has it, until it is undone.
func (l *siteLink) arena(bytes int, undo *bench.Undo) (a *mem.Arena, err error) {
	if a, err = mem.NewArena(bytes, l.domain.Source); err != nil {
		return nil, err
	}
	if err := l.node.Attach(a); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	undo.Later(func() error {
		l.node.Detach(a)
		return a.Close()
	})
	return a, nil
}

func (s *site) open(ctx context.Context) (err error) {
	if s.control != nil {
		return nil
	}
	if s.control, err = partner.Dial(ctx, s.net.Peer.Control); err != nil {
		return err
	}
	s.undo.Later(s.control.Close)
	if err := s.control.Ask(doStart, s.spec, &s.info); err != nil {
		return errors.Join(err, s.close())
	}
	b, err := hex.DecodeString(s.info.Key)
	if err != nil || len(b) != len(s.key) {
		return errors.Join(errs.Newf(errs.Protocol, "bench iod", "", "the peer's key is %q", s.info.Key),
			s.close())
	}
	s.key, s.links = capability.Key(b), map[string]*siteLink{}
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
	d, err := s.net.Open(provider)
	if err != nil {
		return nil, err
	}
	s.undo.Later(d.Domain.Close)
	l := &siteLink{domain: d}
	if l.node, err = msg.NewNode(msg.Options{Domain: d.Domain, Limits: s.limits}); err != nil {
		return nil, err
	}
	s.undo.Later(l.node.Close)
	pool := peer.NewPool(l.node, func(context.Context, uint32) (string, error) { return addr, nil })
	kept := &bench.Undo{} // memory of writes that are not synced
	s.undo.Later(kept.Close)
	s.undo.Later(pool.Close)
	l.remote = remote.New(pool, remote.Options{
		SumNear: true, // what goes without sums is a case of its own
		Arena:   func(bytes int) (*mem.Arena, error) { return l.arena(bytes, kept) },
	})
	s.undo.Later(l.remote.Close)
	s.links[provider] = l
	return l, nil
}

// fillBytes is how much is written at a time where data is made.
const fillBytes = mib

// fill writes the data, all of it different, and syncs.
func (s *site) fill(ctx context.Context) error {
	l, err := s.link(ctx, s.net.Providers[0])
	if err != nil {
		return err
	}
	buf := make([]byte, fillBytes)
	store.Noise(buf)
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
	var list []iod.Count
	err := s.control.Ask(doCounts, struct{}{}, &list)
	all := map[string]float64{}
	for _, c := range list {
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
	s.links, s.control = nil, nil
	return s.undo.Close()
}
