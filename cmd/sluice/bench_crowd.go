package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	benchmeta "github.com/sluice-storage/sluice/bench/meta"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/remote"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
)

// crowd is many clients in this process, each with a connection of its own.
type crowd struct {
	net      *peer.Network
	pool     *peer.Pool
	stop     context.CancelFunc
	tasks    sync.WaitGroup
	beats    atomic.Uint64
	interval time.Duration
	lost     atomic.Pointer[error] // the first failure

	sessions []crowdSession
}

type crowdSession struct {
	service *remote.Service
	id      uint64
}

// crowdDial is how many connections are made at once.
const crowdDial = 32

// crowd opens the clients, and returns when all of them have a session.
func (s *metaSite) crowd(ctx context.Context, n int) (_ benchmeta.Crowd, err error) {
	addr := strings.TrimPrefix(s.url, scheme+"//")
	c := &crowd{sessions: make([]crowdSession, n)}
	// Several requests of one client are never under way: the messages of each are few and small.
	if c.net, err = peer.New(s.ask.providers, msg.Options{}); err != nil {
		return nil, err
	}
	c.pool = peer.NewPool(c.net, func(context.Context, uint32) (string, error) { return addr, nil })
	life, stop := context.WithCancel(context.Background())
	c.stop = stop
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	slots := make(chan struct{}, crowdDial)
	for i := range c.sessions {
		c.tasks.Go(func() {
			slots <- struct{}{}
			wait, err := c.begin(ctx, i)
			<-slots
			if err == nil {
				err = c.stay(life, i, wait)
			}
			if err != nil && life.Err() == nil {
				c.lost.CompareAndSwap(nil, &err)
			}
		})
	}
	for c.beats.Load() < uint64(n) {
		if lost := c.lost.Load(); lost != nil {
			return nil, *lost
		}
		if !sleep(ctx, 10*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
	return c, nil
}

// begin begins a session, and tells how long a Listen waits.
func (c *crowd) begin(ctx context.Context, i int) (wait time.Duration, err error) {
	s := &c.sessions[i]
	s.service, err = remote.New(remote.Options{Pool: c.pool, Peer: uint32(i + 1), Node: c.net.Node})
	if err != nil {
		return 0, err
	}
	info, err := s.service.NewSession(ctx, fmt.Sprintf("bench client %d of %d", i+1, len(c.sessions)))
	if err != nil {
		return 0, err
	}
	s.id = info.ID
	wait = time.Duration(info.LeaseTimeMs) * time.Millisecond / 3
	if i == 0 {
		c.interval = wait
	}
	return wait, nil
}

// stay keeps a session, as a client does.
func (c *crowd) stay(ctx context.Context, i int, wait time.Duration) error {
	s := &c.sessions[i]
	l := meta.Listening{Session: s.id, About: &meta.About{Version: "bench"}}
	for ctx.Err() == nil {
		h, err := s.service.Listen(ctx, l)
		if err != nil {
			return err
		}
		c.beats.Add(1)
		l.About, l.Map, l.WaitMs = nil, h.Map, uint32(wait.Milliseconds())
	}
	return nil
}

// Beats implements benchmeta.Crowd.
func (c *crowd) Beats() uint64 { return c.beats.Load() }

// Interval implements benchmeta.Crowd.
func (c *crowd) Interval() time.Duration { return c.interval }

// Close implements benchmeta.Crowd. A client that was lost on the way is an error.
func (c *crowd) Close() (err error) {
	c.stop()
	c.tasks.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), toolMax)
	defer cancel()
	if lost := c.lost.Load(); lost != nil {
		err = errs.Wrap("bench meta", "a client", *lost)
	}
	for i := range c.sessions {
		if s := &c.sessions[i]; s.id != 0 && err == nil {
			err = s.service.EndSession(ctx, s.id)
		}
	}
	return errors.Join(err, c.pool.Close(), c.net.Close())
}

// crowdSpare is how many connections to the service are not for the crowd: those of I/O servers, of
// the host, and of the bench itself.
const crowdSpare = 24
