package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/remote"
	"github.com/sluice-storage/sluice/peer"
)

const (
	beatEvery = time.Second            // a tenth of the time after which a silent server is down
	beatRetry = 200 * time.Millisecond // after a failure: the metadata service may be starting
	beatMax   = 3 * time.Second        // for one answer
)

// heart announces an I/O server to the metadata service, again and again.
type heart struct {
	parts   *iodParts
	addr    string
	service meta.Cluster
	pool    *peer.Pool
	failed  atomic.Pointer[error] // why the metadata service does not hear of it; nil: it does
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
	return &heart{parts: p, addr: addr, service: service, pool: pool}, nil
}

func (h *heart) close() { _ = h.pool.Close() } // its connections die with the process anyway

// join tells the metadata service once where this server is and how it feels.
func (h *heart) join(ctx context.Context) error {
	space, err := h.parts.store.Space()
	if err != nil {
		return err
	}
	// What the file system could still give is counted once by all who live on it together.
	share := int64(max(h.parts.sharers, 1))
	free := space.Free - space.Shared + space.Shared/share
	if err := h.askTime(ctx); err != nil {
		return err
	}
	s := meta.Server{ID: h.parts.id, Addr: h.addr, StoreID: h.parts.storeID,
		Total: space.Total / share, Free: free, Verifier: h.parts.store.Verifier(),
		Life: h.parts.life, MaxFile: h.parts.maxFile()}
	ctx, cancel := context.WithTimeout(ctx, beatMax)
	defer cancel()
	return h.service.Join(ctx, s, meta.SignJoin(h.parts.key, &s))
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

// beat returns when ctx ends. A service that is away is waited for: the server serves meanwhile.
func (h *heart) beat(ctx context.Context) {
	missed := false
	for {
		err := h.join(ctx)
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
			return
		case <-time.After(wait):
		}
	}
}

// metaAddr is where the metadata service is now.
func (c *cluster) metaAddr() (string, error) {
	text, err := os.ReadFile(c.metaAddrFile())
	return strings.TrimSpace(string(text)), err
}
