package main

import (
	"context"
	"math/rand/v2"
	"sync/atomic"

	"github.com/sluice-storage/sluice/config"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	product "github.com/sluice-storage/sluice/internal/version"
	"github.com/sluice-storage/sluice/meta"
)

// hostHeart announces a host to the metadata service, again and again, as heart does for an I/O
// server.
type hostHeart struct {
	host  *host
	roles atomic.Uint32
	done  chan struct{}

	name               string
	conn               *metaConnection // nil: there is none at the moment
	incarnation, start uint64
	joined             bool
}

// rolesOf is what a host does by its file.
func rolesOf(cfg *config.Config) (r identity.Roles) {
	if cfg.Meta != nil {
		r |= identity.RoleMeta
	}
	if len(cfg.Iods) > 0 {
		r |= identity.RoleIod
	}
	if len(cfg.Mounts) > 0 || len(cfg.NBDs) > 0 {
		r |= identity.RoleGateway
	}
	return r
}

// startHeart begins to announce the host, until ctx ends. What it returns waits until it has been
// said that the host leaves.
func (h *host) startHeart(ctx context.Context) *hostHeart {
	t := &hostHeart{host: h, done: make(chan struct{}), name: h.cfg.Host, start: rand.Uint64()}
	t.roles.Store(uint32(rolesOf(h.cfg)))
	if identity.CheckName(t.name) != nil {
		close(t.done) // a folder from before hosts had names
		return t
	}
	url, by := h.url, byOf(h.cfg).within(h.cluster)
	first, cancel := context.WithTimeout(ctx, leaveMax)
	if t.once(first, url, by) != nil { // it is tried again, and logged then
		t.drop()
	}
	cancel()
	go func() {
		defer close(t.done)
		t.beat(ctx, url, by)
	}()
	return t
}

// changed says what the host does now.
func (t *hostHeart) changed(cfg *config.Config) { t.roles.Store(uint32(rolesOf(cfg))) }

// wait returns when the last word was said.
func (t *hostHeart) wait() { <-t.done }

func (t *hostHeart) beat(ctx context.Context, url string, by *providersFlag) {
	missed := false
	for {
		err := t.once(ctx, url, by)
		wait := beatEvery
		if err != nil {
			t.drop()
			wait = beatMax // the I/O servers of the host ask more often
		}
		if err != nil && !missed && ctx.Err() == nil {
			t.host.log.Warn("the metadata service does not hear of this host", "host", t.name, "err", err)
		}
		missed = err != nil
		if sleep(ctx, wait) {
			continue
		}
		if t.joined && t.conn != nil {
			last, cancel := context.WithTimeout(context.Background(), leaveMax)
			_ = t.say(last, true) // who does not hear it finds out
			cancel()
		}
		t.drop()
		return
	}
}

// once is one heartbeat, over a connection that is made when there is none.
func (t *hostHeart) once(ctx context.Context, url string, by *providersFlag) (err error) {
	ctx, cancel := context.WithTimeout(ctx, beatMax)
	defer cancel()
	if t.conn == nil {
		if t.conn, err = dialMeta(ctx, url, by); err != nil {
			return err
		}
	}
	if t.incarnation == 0 {
		hosts, err := t.conn.meta.Hosts(ctx)
		if err != nil {
			return err
		}
		t.incarnation = 1
		for _, h := range hosts {
			if h.Name == t.name {
				t.incarnation = h.Incarnation + 1
			}
		}
	}
	err = t.say(ctx, false)
	if errs.KindOf(err) == errs.Stale {
		t.incarnation = 0 // another process was quicker; there can be only one in this folder
	}
	t.joined = t.joined || err == nil
	return err
}

func (t *hostHeart) say(ctx context.Context, leaving bool) error {
	return t.conn.meta.Beat(ctx, meta.Caller{}, meta.Host{Name: t.name, Incarnation: t.incarnation,
		Start: t.start, Version: product.String(), Roles: identity.Roles(t.roles.Load()),
		Leaving: leaving})
}

func (t *hostHeart) drop() {
	if t.conn != nil {
		t.conn.close()
		t.conn = nil
	}
}
