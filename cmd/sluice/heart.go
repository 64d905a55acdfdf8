package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	product "github.com/sluice-storage/sluice/internal/version"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/remote"
	"github.com/sluice-storage/sluice/peer"
)

const (
	beatEvery = time.Second            // a tenth of the time after which a silent server is down
	beatRetry = 200 * time.Millisecond // after a failure: the metadata service may be starting
	beatMax   = 3 * time.Second        // for one answer
	leaveMax  = time.Second            // for the last one: others wait for this process to end
)

// heart announces an I/O server to the metadata service, again and again.
type heart struct {
	parts   *iodParts
	addr    string
	service interface {
		meta.Cluster
		meta.ServerKeys
	}
	pool   *peer.Pool
	failed atomic.Pointer[error] // why the metadata service does not hear of it; nil: it does

	// Which start of the server this is: chosen with the first heartbeat, once the metadata service
	// has said which ones there were.
	incarnation, start uint64
	joined             bool
}

// healthy tells what is wrong with the server: its store, or that nobody knows of it.
func (h *heart) healthy() error {
	if _, err := h.parts.store.Space(); err != nil {
		return err
	}
	if s, ok := h.parts.store.(interface{ Health() error }); ok {
		if err := s.Health(); err != nil {
			return err
		}
	}
	if err := h.failed.Load(); err != nil {
		return *err
	}
	return nil
}

func newHeart(c *cluster, net *peer.Network, p *iodParts, addr string) (*heart, error) {
	pool := peer.NewPool(net, func(context.Context, uint32) (string, error) { return c.metaAddr() })
	service, err := remote.New(remote.Options{Pool: pool, Node: net.Node})
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return &heart{parts: p, addr: addr, service: service, pool: pool, start: rand.Uint64()}, nil
}

func (h *heart) close() { _ = h.pool.Close() } // its connections die with the process anyway

// choose finds out which start this is: the one behind all that the metadata service has heard of.
func (h *heart) choose(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beatMax)
	defer cancel()
	servers, err := h.service.Servers(ctx)
	if err != nil {
		return err
	}
	h.incarnation = 1
	for i := range servers {
		if servers[i].ID == h.parts.id {
			h.incarnation = servers[i].Incarnation + 1
		}
	}
	return nil
}

// join tells the metadata service once where this server is and how it feels.
func (h *heart) join(ctx context.Context, leaving bool) error {
	if h.incarnation == 0 {
		if err := h.choose(ctx); err != nil {
			return err
		}
	}
	err := h.say(ctx, leaving)
	if errs.KindOf(err) == errs.Stale && !h.joined {
		h.incarnation = 0 // another process was quicker
	}
	h.joined = h.joined || err == nil
	return err
}

// say is one heartbeat.
func (h *heart) say(ctx context.Context, leaving bool) error {
	space, err := h.parts.store.Space()
	if err != nil {
		return err
	}
	// What the file system could still give is counted once by all who live on it together.
	share := int64(1)
	if h.parts.sharers != nil {
		share = int64(max(h.parts.sharers(), 1))
	}
	free := space.Free - space.Shared + space.Shared/share
	if err := h.askTime(ctx); err != nil {
		return err
	}
	if err := h.askKeys(ctx); err != nil {
		return err
	}
	s := meta.Server{ID: h.parts.id, Addr: h.addr, StoreID: h.parts.storeID,
		Total: space.Total / share, Free: free, Verifier: h.parts.store.Verifier(),
		Life: h.parts.life, MaxFile: h.parts.maxFile(), Host: h.parts.host, Incarnation: h.incarnation,
		Start: h.start, Version: product.String(), Leaving: leaving}
	mac, err := h.parts.keys.sign(&s)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, beatMax)
	defer cancel()
	return h.service.Join(ctx, s, mac)
}

// askKeys learns which keys capabilities are signed with.
func (h *heart) askKeys(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beatMax)
	defer cancel()
	return h.parts.keys.ask(ctx, h.service)
}

// askTime learns what time it is at the metadata service, which capabilities are measured by.
func (h *heart) askTime(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beatMax)
	defer cancel()
	asked := h.parts.clock.Local()
	now, err := h.service.Time(ctx)
	if err == nil {
		h.parts.clock.Heard(asked, now)
	}
	return err
}

// superseded tells whether the metadata service says that this process is not the server any more:
// a later one was started, or somebody has removed it. It must not serve, and cannot come back.
func (h *heart) superseded(err error) bool {
	k := errs.KindOf(err)
	return h.joined && (k == errs.Stale || k == errs.NotFound)
}

// beat returns when ctx ends, after it has said so, or when another process has become this server.
// A service that is away is waited for: the server serves meanwhile.
func (h *heart) beat(ctx context.Context) error {
	missed := false
	for {
		err := h.join(ctx, false)
		if h.superseded(err) {
			h.parts.log.Error("this process is not the server any more", "err", err)
			return err
		}
		wait := beatEvery
		h.failed.Store(nil)
		if err != nil {
			wait = beatRetry
			h.failed.Store(&err)
		}
		if err != nil && !missed && ctx.Err() == nil {
			h.parts.log.Warn("the metadata service does not hear of this server", "err", err)
		}
		if err == nil && missed {
			h.parts.log.Info("the metadata service hears of this server again")
		}
		missed = err != nil
		select {
		case <-ctx.Done():
			return h.leave()
		case <-time.After(wait):
		}
	}
}

// leave says that the server ends, so that nobody takes its silence for a crash. A service that is
// away finds out by itself.
func (h *heart) leave() error {
	ctx, cancel := context.WithTimeout(context.Background(), leaveMax)
	defer cancel()
	if h.joined {
		if err := h.say(ctx, true); err != nil {
			h.parts.log.Warn("the metadata service does not hear that this server ends", "err", err)
		}
	}
	return nil
}

// metaAddr is where the metadata service is now.
func (c *cluster) metaAddr() (string, error) {
	text, err := os.ReadFile(c.metaAddrFile())
	return strings.TrimSpace(string(text)), err
}
