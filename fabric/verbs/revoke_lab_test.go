//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"context"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// holdPort is that of a server that accepts, and does nothing.
const holdPort = ":7473"

// hold is the role of that server.
func hold(host string) error {
	ln, err := newHolder(host)
	for err == nil {
		err = ln.next()
		if errs.KindOf(err) == errs.Disconnected {
			err = nil // of one peer
		}
	}
	return err
}

type holder struct {
	dom fabric.Domain
	l   fabric.Listener
}

func newHolder(host string) (*holder, error) {
	dom, err := Open(Options{})
	if err != nil {
		return nil, err
	}
	l, err := dom.Connector().Listen(host + holdPort)
	return &holder{dom, l}, err
}

func (h *holder) next() error {
	cq, err := h.dom.NewCQ(fabric.CQOptions{Depth: 2 * depth})
	if err != nil {
		return err
	}
	_, err = h.l.Accept(context.Background(), func(fabric.Peer) (fabric.EndpointConfig, error) {
		return fabric.EndpointConfig{SendCQ: cq, RecvCQ: cq, SendDepth: depth, RecvDepth: depth}, nil
	})
	return err
}

// revokeTime is for how long it is tried, revokeMax what a Revoke may take: more than the device
// takes to send again what it thinks is lost, and less than the time between two probes.
const revokeTime, revokeMax = 3 * time.Minute, 3 * time.Second

// TestRevokeBehindWrites revokes grants in the moment in which the requests before that end, at
// which Soft-RoCE may miss it. It needs a second machine, since within one nothing is on its way:
//
//	go test -c -o /tmp/v ./fabric/verbs; go run ./vmtest/lab --guests 2 \
//	  --peer 'SLUICE_VERBS_ROLE=hold SLUICE_VERBS_HOST=$LAB_SELF /tmp/v' -- \
//	  bash -c 'SLUICE_VERBS_HOLDER=$LAB_PEER /tmp/v -test.v -test.run BehindWrites'
func TestRevokeBehindWrites(t *testing.T) {
	host := os.Getenv("SLUICE_VERBS_HOLDER")
	if host == "" {
		t.Skip("needs a server on another machine, of the role hold")
	}
	s := newSide(t, Options{}, fabric.CQOptions{})
	s.dialHolder(host)
	var longest time.Duration
	trip, n := time.Millisecond, uint64(0)
	for begin := time.Now(); time.Since(begin) < revokeTime; n++ {
		rem := s.grant(4096, 4096, fabric.RemoteWrite)
		at := time.Now()
		fatal(t, s.ep.Post([]fabric.WR{
			{Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Context: n}}))
		if n%16 == 0 { // how long such a request takes by now
			s.nextSend(n)
			trip = (7*trip + min(time.Since(at), 10*time.Millisecond)) / 8
			s.reg.Revoke(rem)
			continue
		}
		for pause := time.Duration(rand.Int64N(int64(trip) * 5 / 4)); time.Since(at) < pause; {
		}
		at = time.Now()
		s.reg.Revoke(rem)
		longest = max(longest, time.Since(at))
		s.nextSend(n)
	}
	t.Logf("%d revokes, the longest took %v; a request takes %v", n, longest, trip)
	if longest > revokeMax {
		t.Errorf("a Revoke took %v", longest)
	}
}

// dialHolder connects to a server that may not have begun yet.
func (s *side) dialHolder(host string) {
	s.t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
		s.ep, err = s.dom.Connector().Dial(context.Background(), host+holdPort, s.config())
		if err == nil {
			return
		}
	}
	s.t.Fatal(err)
}

// TestDeviceStopsInSilence has Soft-RoCE fail to bind a window behind a request that has no answer
// yet. It takes no answer any more, and reports nothing: the endpoint has to end all the same. See
// TestRevokeBehindWrites.
func TestDeviceStopsInSilence(t *testing.T) {
	host := os.Getenv("SLUICE_VERBS_HOLDER")
	if host == "" {
		t.Skip("needs a server on another machine, of the role hold")
	}
	s := newSide(t, Options{KeepAlive: time.Second, PeerTimeout: time.Second}, fabric.CQOptions{})
	s.dialHolder(host)
	e := s.ep.(*endpoint)
	rem := s.grant(4096, 4096, fabric.RemoteWrite)
	wr := []fabric.WR{{Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Context: 1}}
	fatal(t, s.ep.Post(wr))
	s.nextSend(1)
	g := e.d.grants.find(rem.Key, s.reg.(*region))
	wr[0].Context = 2
	for range depth / 2 { // so many that not all have an answer when the binding's turn comes
		fatal(t, s.ep.Post(wr))
	}
	fatal(t, e.control(&sendSlot{kind: slotControl}, func(id uint64) error {
		return postBind(e.qp, id, g.mw, nextKey(g.rkey.Load()), g.mr, g.mem, g.access())
	}))
	begin := time.Now()
	var c fabric.Completion
	for range depth / 2 {
		c = s.nextSend(2)
	}
	wants(t, c, errs.Disconnected)
	t.Logf("it ended after %v: %v", time.Since(begin), e.Cause())
}
