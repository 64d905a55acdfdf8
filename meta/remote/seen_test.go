package remote_test

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/internal/activity"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/remote"
	"github.com/sluice-storage/sluice/meta/server"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
)

// waiting is a service one of whose operations waits for other clients.
type waiting struct {
	meta.Service
	begun, free chan struct{}
}

func (w *waiting) GetAttr(ctx context.Context, _ meta.Caller, ino meta.Ino) (meta.Attr, error) {
	p := wait.ParkerOf(ctx)
	p.Park()
	close(w.begun)
	<-w.free
	return meta.Attr{Ino: ino}, p.Unpark(ctx)
}

// TestWaitsForOthersAreSeen: of a request that waits for other clients onlookers see that it does,
// while it does and afterwards.
func TestWaitsForOthersAreSeen(t *testing.T) {
	w := &waiting{begun: make(chan struct{}), free: make(chan struct{})}
	domain := must(tcp.Open(tcp.Options{}))
	node := must(msg.NewNode(msg.Options{Domain: domain}))
	h := must(server.New(w, server.Options{Node: node}))
	srv := must(node.Serve("127.0.0.1:0", h, msg.ServeOptions{}))
	pool := peer.NewPool(node, func(context.Context, uint32) (string, error) {
		return srv.Addr(), nil
	})
	t.Cleanup(func() {
		_ = pool.Close()
		_ = node.Close()
		_ = domain.Close()
	})
	r := must(remote.New(remote.Options{Pool: pool, Node: node, WaitMax: time.Minute}))
	answer := make(chan error, 1)
	go func() {
		_, err := r.GetAttr(context.Background(), meta.Caller{Session: 7}, 5)
		answer <- err
	}()
	<-w.begun
	var s activity.Snapshot
	for len(s.Running) == 0 { // it is shown when it has been under way for a while
		time.Sleep(10 * time.Millisecond)
		h.Activity().Snapshot(&s)
	}
	if one := s.Running[0]; one.Phase != "other clients" || one.Client != 7 || one.Object != 5 ||
		one.Op != meta.OpGetAttr.String() {
		t.Errorf("%+v", one)
	}
	close(w.free)
	if err := <-answer; err != nil {
		t.Fatal(err)
	}
	h.Activity().Snapshot(&s)
	if len(s.Slow) != 1 || len(s.Running) != 0 || s.Slow[0].Phases[0].Name != "other clients" ||
		s.Slow[0].Phases[0].Took < 50*time.Millisecond {
		t.Errorf("%+v, %+v", s.Slow, s.Running)
	}
}
