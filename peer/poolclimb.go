package peer

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/msg"
)

// Pauses between attempts to find a better way, which double. One that was found and lost again
// goes on where it was: what comes and goes is not followed at each turn. After climbRest without
// an attempt they begin anew.
const (
	climbFirst = time.Second
	climbMax   = 30 * time.Second
	climbRest  = 2 * climbMax

	// climbQuiet is longer than a caller that got a connection takes to use it.
	climbQuiet = 2 * time.Second
)

// climberOf is who may find a better way than that of a connection which was just made; nil: there
// is none.
func (p *Pool) climberOf(c *msg.Conn) climber {
	if by, ok := p.dialer.(climber); ok && c != nil && by.MayClimb(c) {
		return by
	}
	return nil
}

// climbLocked begins to look for a better way. by may be nil.
func (p *Pool) climbLocked(by climber, e *entry, c *msg.Conn) {
	if by == nil || p.closed {
		return
	}
	p.dials.Add(1)
	go func() {
		defer p.dials.Done()
		p.climb(by, e, c)
	}()
}

// climb looks for a better way until there is one, or the connection is not that of the entry any
// more.
func (p *Pool) climb(by climber, e *entry, c *msg.Conn) {
	for by.MayClimb(c) && p.pause(e, c) {
		ctx, cancel := context.WithTimeout(p.ctx, dialTimeout)
		better, _ := by.Better(ctx, c) // why not is told by the ladder
		cancel()
		if better != nil {
			p.replace(e, c, better)
			return
		}
	}
}

// pause waits before the next attempt. It is false when there is no use in one.
func (p *Pool) pause(e *entry, c *msg.Conn) bool {
	p.mu.Lock()
	if time.Since(e.climbed) > climbRest {
		e.climbs = 0
	}
	e.climbs++
	wait := p.climbs.wait(e.climbs)
	p.mu.Unlock()
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.Done():
		return false
	case <-p.ctx.Done():
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e.climbed = time.Now()
	return !p.closed && e.conn == c && c.Err() == nil
}

// replace has new requests go by a better connection. Those on the old one are let finish.
func (p *Pool) replace(e *entry, c, better *msg.Conn) {
	by := p.climberOf(better)
	p.mu.Lock()
	taken := !p.closed && e.conn == c
	if taken {
		e.conn = better
		p.climbLocked(by, e, better)
	}
	p.mu.Unlock()
	if !taken {
		better.Close()
		return
	}
	c.Drain(p.ctx, p.quiet)
}
