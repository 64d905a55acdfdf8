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
	"github.com/sluice-storage/sluice/peer"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

const (
	bulkBytes = 1 << 20
	bulkDepth = 4
	bulkRange = bench.BulkRange // what is read over and over: all of it stays in the server's cache
)

// cacheCases are reads of an I/O server's cache, each beside plain TCP that sends as much data:
// what stays in the processor's caches is quicker for everybody. The server is dialled when the
// first of them is measured; close ends that.
func cacheCases(info *peerInfo) (cases []bench.Case, close func() error) {
	r := &cacheReader{info: info}
	return []bench.Case{
		{Bench: "net", Name: "read from a server's cache", Size: bulkBytes, Depth: bulkDepth,
			Metric:  bench.Bandwidth,
			About:   "1 MiB reads through iod, the same data again and again",
			Ceiling: bench.PlainBulk(info.Bulk, bulkBytes, bulkDepth),
			Others: []bench.Contender{r.contender("tcp", 1, bulkBytes),
				r.contender("tcp", bulkDepth, bulkBytes)}},
		{Bench: "net", Name: "read through 64 MiB of it", Size: bulkBytes, Depth: bulkDepth,
			Metric:  bench.Bandwidth,
			About:   "1 MiB reads through iod, walking through more than processors cache",
			Ceiling: bench.PlainWalk(info.Walk, bulkBytes, bulkDepth),
			Others: []bench.Contender{r.contender("tcp", 1, bulkRange),
				r.contender("tcp", bulkDepth, bulkRange)}},
	}, r.close
}

// cacheReader reads an object that lies in an I/O server's cache.
type cacheReader struct {
	info   *peerInfo
	domain fabric.Domain
	node   *msg.Node
	pool   *peer.Pool
	remote *remote.Remote // nil until the first measurement
	key    capability.Key
}

// open connects, and fills the cache.
func (r *cacheReader) open(ctx context.Context) error {
	if r.remote != nil {
		return nil
	}
	b, err := hex.DecodeString(r.info.Key)
	if err != nil || len(b) != len(r.key) {
		return errs.Newf(errs.Protocol, "bench net", "", "the peer's key is %q", r.info.Key)
	}
	r.key = capability.Key(b)
	if r.domain, err = tcp.Open(tcp.Options{}); err != nil {
		return err
	}
	if r.node, err = msg.NewNode(msg.Options{Domain: r.domain}); err != nil {
		return err
	}
	r.pool = peer.NewPool(r.node, func(context.Context, uint32) (string, error) {
		return r.info.Iod, nil
	})
	at := remote.New(r.pool, remote.Options{})
	buf := make([]byte, bulkBytes)
	for off := int64(0); off < bulkRange; off += bulkBytes {
		_, err := at.Write(ctx, r.target(), access(off), memory(buf), stripe.Volatile)
		if err != nil {
			return err
		}
	}
	r.remote = at
	return nil
}

func (r *cacheReader) close() error {
	var failed []error
	if r.remote != nil {
		failed = append(failed, r.remote.Close())
	}
	if r.pool != nil {
		r.pool.Close()
	}
	if r.node != nil {
		failed = append(failed, r.node.Close())
	}
	if r.domain != nil {
		failed = append(failed, r.domain.Close())
	}
	return errors.Join(failed...)
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
		if err := r.open(ctx); err != nil {
			return 0, err
		}
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
