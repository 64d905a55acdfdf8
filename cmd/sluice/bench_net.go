package main

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/iod/remote"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

const (
	bulkBytes = 1 << 20
	bulkDepth = 4
	bulkRange = bench.BulkRange // what is read over and over: all of it stays in the server's cache
)

// benchNet measures requests and reads between this process and another one.
func benchNet(ctx context.Context, b bench.Budget) ([]bench.Row, error) {
	p, err := startPeer(ctx)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	domain, err := tcp.Open(tcp.Options{})
	if err != nil {
		return nil, err
	}
	defer domain.Close()
	node, err := msg.NewNode(msg.Options{Domain: domain})
	if err != nil {
		return nil, err
	}
	defer node.Close()
	conn, err := node.Dial(ctx, p.info.Msg)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	pool := msg.NewPool(node, func(context.Context, uint32) (string, error) { return p.info.Iod, nil })
	defer pool.Close()
	r, err := newCacheReader(ctx, pool, p.info.Key)
	if err != nil {
		return nil, err
	}
	provider := domain.Caps().Provider
	return bench.RunAll(ctx, b, []bench.Case{
		{Bench: "net", Name: "8-byte request", Size: bench.PingBytes, Depth: 1, Metric: bench.Latency,
			Ceiling: bench.PlainPing(p.info.Echo),
			Others:  []bench.Contender{bench.MsgPing(provider, conn)}},
		// Each beside plain TCP that sends as much data: what stays in the processor's caches is
		// quicker for everybody.
		{Bench: "net", Name: "read from a server's cache", Size: bulkBytes, Depth: bulkDepth,
			Metric:  bench.Bandwidth,
			Ceiling: bench.PlainBulk(p.info.Bulk, bulkBytes, bulkDepth),
			Others: []bench.Contender{r.contender(provider, 1, bulkBytes),
				r.contender(provider, bulkDepth, bulkBytes)}},
		{Bench: "net", Name: "read through 64 MiB of it", Size: bulkBytes, Depth: bulkDepth,
			Metric:  bench.Bandwidth,
			Ceiling: bench.PlainWalk(p.info.Walk, bulkBytes, bulkDepth),
			Others: []bench.Contender{r.contender(provider, 1, bulkRange),
				r.contender(provider, bulkDepth, bulkRange)}},
	})
}

// cacheReader reads an object that lies in an I/O server's cache.
type cacheReader struct {
	remote *remote.Remote
	key    capability.Key
}

func newCacheReader(ctx context.Context, pool *msg.Pool, key string) (*cacheReader, error) {
	b, err := hex.DecodeString(key)
	if err != nil || len(b) != len(capability.Key{}) {
		return nil, errs.Newf(errs.Protocol, "bench net", "", "the peer's key is %q", key)
	}
	r := &cacheReader{remote: remote.New(pool, remote.Options{}), key: capability.Key(b)}
	buf := make([]byte, bulkBytes)
	for off := int64(0); off < bulkRange; off += bulkBytes {
		_, err := r.remote.Write(ctx, r.target(), access(off), memory(buf), stripe.Volatile)
		if err != nil {
			return nil, err
		}
	}
	return r, nil
}

// target is signed anew each time it is needed for long.
func (r *cacheReader) target() iod.Target {
	c := capability.Capability{File: 1, Gen: 1, Rights: capability.Read | capability.Write, Server: 1,
		Expiry: time.Now().Add(capability.TTLMax)}
	return iod.Target{Server: 1, Object: stripe.ObjectID{File: 1, Gen: 1}, Cap: r.key.Sign(&c),
		Stamp: wire.Stamp{Gen: 1}}
}

func access(off int64) seg.Access { return seg.Contig(off, bulkBytes) }

func memory(buf []byte) *msg.Memory {
	return &msg.Memory{Windows: []fabric.Sge{{Buf: buf}}, Access: seg.Contig(0, int64(len(buf)))}
}

// contender reads the first length bytes of the object over and over, depth requests at once.
func (r *cacheReader) contender(provider string, depth int, length int64) bench.Contender {
	bufs := make([]*msg.Memory, depth)
	for i := range bufs {
		bufs[i] = memory(make([]byte, bulkBytes))
	}
	return bench.Contender{Provider: provider, Depth: depth, Measure: func(ctx context.Context,
		d time.Duration) (float64, error) {
		t := r.target()
		return bench.Throughput(ctx, d, depth, bulkBytes, func(worker, i int) error {
			off := int64(i*depth+worker) * bulkBytes % length
			_, err := r.remote.Read(ctx, t, access(off), bufs[worker])
			if errors.Is(err, errs.Expired) {
				return errs.Newf(errs.Invalid, "bench net", "", "one measurement lasts too long")
			}
			return err
		})
	}}
}
