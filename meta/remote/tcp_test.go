package remote_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
	"github.com/sluice-storage/sluice/meta/remote"
	"github.com/sluice-storage/sluice/meta/server"
	"github.com/sluice-storage/sluice/meta/store"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
)

// overTCP is a service and a client on the loopback interface.
func overTCP(t testing.TB) *remote.Service {
	t.Helper()
	engine := memkv.New(memkv.Options{})
	s := must(store.New(context.Background(), engine,
		store.Options{Objects: metatest.NewObjects(), HeartbeatMax: time.Hour}))
	far := must(tcp.Open(tcp.Options{Linger: 50 * time.Millisecond}))
	farNode := must(msg.NewNode(msg.Options{Domain: far}))
	h := must(server.New(s, server.Options{Node: farNode}))
	srv := must(farNode.Serve("127.0.0.1:0", h, msg.ServeOptions{Quick: server.Quick}))
	near := must(tcp.Open(tcp.Options{Linger: 50 * time.Millisecond}))
	node := must(msg.NewNode(msg.Options{Domain: near}))
	pool := peer.NewPool(node, func(context.Context, uint32) (string, error) {
		return srv.Addr(), nil
	})
	t.Cleanup(func() {
		_ = pool.Close()
		_ = node.Close()
		_ = near.Close()
		_ = farNode.Close()
		_ = far.Close()
		s.Stop()
		_ = engine.Close()
	})
	return must(remote.New(remote.Options{Pool: pool, Node: node}))
}

func TestOverTCP(t *testing.T) {
	s := overTCP(t)
	for i := range 200 {
		_, err := s.Make(t.Context(), meta.Caller{}, meta.RootIno, fmt.Sprint("d", i),
			meta.NewFile{Type: meta.Directory})
		if err != nil {
			t.Fatal(err)
		}
	}
	big := make([]byte, meta.XattrValue)
	err := s.SetXattr(t.Context(), meta.Caller{}, meta.RootIno, "user.big", big, true, false)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.GetXattr(t.Context(), meta.Caller{}, meta.RootIno, "user.big")
	if err != nil || len(got) != len(big) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	page, err := s.ReadDir(t.Context(), meta.Caller{}, meta.RootIno, 0, 1000, true)
	if err != nil || len(page) != 200 {
		t.Fatalf("%d entries, %v", len(page), err)
	}
}

func BenchmarkTCP(b *testing.B) {
	for name, op := range map[string]func(s *remote.Service, i int64) error{
		"stat": func(s *remote.Service, _ int64) error {
			_, err := s.GetAttr(b.Context(), meta.Caller{}, meta.RootIno)
			return err
		},
		"mkdir": func(s *remote.Service, i int64) error {
			_, err := s.Make(b.Context(), meta.Caller{}, meta.RootIno, fmt.Sprint("d", i),
				meta.NewFile{Type: meta.Directory})
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			s := overTCP(b)
			var n atomic.Int64
			b.SetParallelism(16)
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := op(s, n.Add(1)); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
