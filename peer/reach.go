package peer

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/msg"
)

// placePause is how long a place may take to answer before the next one is tried beside it: what a
// dead one costs.
const placePause = time.Second

// spot is one place of a step that is to be tried.
type spot struct {
	at    string
	rank  int      // how much it is preferred: 0 most
	token [32]byte // to show there
	was   error    // why it failed recently, so that it is tried late; nil: it did not
	err   error    // why it was not taken now
}

// knock is what came of a spot.
type knock struct {
	index int
	conn  *msg.Conn
	err   error
}

// reach connects by the first of several spots of a step that answers: they are tried in their
// order, the next one when one has failed, or has not answered for a while. check decides whether a
// connection is of use; nil: each is. What failed is remembered, and is in the spots.
func (k *climb) reach(ctx context.Context, s *step, spots []spot,
	check func(context.Context, *msg.Conn) error) (*msg.Conn, int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan knock, len(spots)) // nobody waits for those that come too late
	next, left := 0, 0
	start := func() {
		if next == len(spots) {
			return
		}
		i := next
		next++
		left++
		go func() {
			c, err := k.knock(ctx, s, &spots[i], check)
			results <- knock{i, c, err}
		}()
	}
	start()
	tick := time.NewTicker(placePause)
	defer tick.Stop()
	var failed error
	for left > 0 {
		select {
		case <-tick.C:
			start()
		case r := <-results:
			left--
			if r.err == nil {
				cancel()
				k.overtaken(s, spots[:next], r.index)
				for range left {
					if late := <-results; late.conn != nil {
						late.conn.Close()
					}
				}
				k.net.misses.forget(missKey(s, spots[r.index].at))
				return r.conn, r.index, nil
			}
			k.missed(s, &spots[r.index], r.err)
			failed = r.err
			start()
			tick.Reset(placePause)
		}
	}
	return nil, 0, failed
}

// knock connects at one spot.
func (k *climb) knock(ctx context.Context, s *step, at *spot,
	check func(context.Context, *msg.Conn) error) (*msg.Conn, error) {
	c, err := k.net.DialAt(ctx, msg.Place{Domain: s.domain, Addr: at.at}, at.token)
	if err != nil || check == nil {
		return c, err
	}
	if err = check(ctx, c); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// overtaken notes those that were tried before the one that answered and have not.
func (k *climb) overtaken(s *step, spots []spot, taken int) {
	for i := range spots[:taken] {
		if spots[i].err == nil {
			k.missed(s, &spots[i], errs.Newf(errs.TimedOut, "peer.Dial", spots[i].at,
				"no answer within %v, and another place has answered", placePause))
		}
	}
}

func (k *climb) missed(s *step, at *spot, err error) {
	at.err = err
	k.net.misses.note(missKey(s, at.at), err)
}

func missKey(s *step, at string) string { return at + " " + s.caps.Provider }

// order puts spots in the order in which they are tried: near ones first, and those that have
// failed recently last, unless what failed before does not count.
func (k *climb) order(s *step, places []string) []spot {
	if len(places) > 1 {
		places = prefer(places, k.net.networks())
	}
	var spots, late []spot
	for i, at := range places {
		x := spot{at: at, rank: i}
		if k.have == nil {
			x.was = k.net.misses.recent(missKey(s, at))
		}
		if x.was != nil {
			late = append(late, x)
		} else {
			spots = append(spots, x)
		}
	}
	return append(spots, late...)
}
