package meta

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/partner"
	"github.com/sluice-storage/sluice/kv"
)

// Bare is an engine that writes transactions and does nothing else.
type Bare interface {
	Commit(t *kv.Txn) error
	Settle(limit time.Duration) // waits for its work in the background
	Close() error
}

// settleMax bounds how long a measurement waits for the one before: work in the background of the
// ceiling is this process', and would count as the client's.
const settleMax = 5 * time.Second

// byPebble does the transactions of an operation with pebble alone.
func (b *Bench) byPebble(o *op, v variant) bench.Contender {
	var next atomic.Uint64
	next.Store(rand.Uint64() >> 20) // no two cases work on the same files
	return bench.Contender{Provider: Pebble,
		Measure: func(ctx context.Context, d time.Duration) (r bench.Result, err error) {
			if b.bare == nil {
				if b.bare, err = b.OpenBare(); err != nil {
					return r, err
				}
			}
			before, err := partner.OwnCPU()
			if err != nil {
				return r, err
			}
			r, err = bench.Load{Depth: v.depth, Size: o.size, Op: func(int, int) error {
				list := o.bare(next.Add(1))
				for i := range list {
					list[i].Sync = v.sync && i == len(list)-1
					if err := b.bare.Commit(&list[i]); err != nil {
						return err
					}
				}
				return nil
			}}.Run(ctx, d)
			b.bare.Settle(settleMax)
			now, cpuErr := partner.OwnCPU()
			if err == nil {
				err = cpuErr
			}
			if r.Ops > 0 {
				r.Extras = append(r.Extras, bench.Extra{Metric: bench.TotalCPU,
					Value: (now - before).Seconds() * 1e6 / float64(r.Ops)})
			}
			return r, err
		}}
}

// txn is a transaction as the service makes it: keys and values have the lengths of meta/store's
// (keys.go there), and what is written again and again is written again and again.
type txn = kv.Txn

const (
	inodeBytes = 110 // a file's inode with its layout
	timesBytes = 16
)

func key(kind byte, numbers ...uint64) []byte {
	k := append(make([]byte, 0, 1+8*len(numbers)+16), kind)
	for _, n := range numbers {
		k = binary.BigEndian.AppendUint64(k, n)
	}
	return k
}

func put(key []byte, bytes int) kv.Put { return kv.Put{Key: key, Value: make([]byte, bytes)} }

// named is a transaction that makes or takes names in directory 1, whose counter and times change.
func named(i uint64, step byte) txn {
	t := txn{Puts: []kv.Put{put(key('T', 1), timesBytes)}, Adds: []kv.Add{{Key: key('N', 1)}}}
	binary.BigEndian.PutUint64(t.ReqID[:], i)
	t.ReqID[8] = step + 1
	return t
}

func entry(i uint64) []byte { return fmt.Appendf(key('D', 1), "f%012d", i) }

func makeTxns(i uint64) []txn {
	t := named(i, 0)
	t.Puts = append(t.Puts, put(key('I', i), inodeBytes), put(entry(i), 17), put(key('C', 1, i), 14))
	t.Adds = append(t.Adds, kv.Add{Key: []byte("Afiles")})
	return []txn{t}
}

func createTxns(i uint64) []txn {
	t := txn{Puts: []kv.Put{put(key('I', i), inodeBytes)}}
	binary.BigEndian.PutUint64(t.ReqID[:], i)
	t.ReqID[8] = 2
	return append(makeTxns(i), t)
}

func writeTxns(i uint64) []txn {
	list := createTxns(i)
	list[1].Puts = append(list[1].Puts, put(key('F', i), smallBytes))
	return list
}

func renameTxns(i uint64) []txn {
	t := named(i, 0)
	t.Puts = append(t.Puts, put(entry(i), 17), put(key('C', 1, 1), 14), put(key('I', 1), inodeBytes))
	t.Deletes = [][]byte{entry(i - 1)}
	return []txn{t}
}

func unlinkTxns(i uint64) []txn {
	t := named(i, 0)
	t.Puts = append(t.Puts, put(key('Q', i), inodeBytes))
	t.Deletes = [][]byte{key('I', i), entry(i), key('C', 1, i)}
	t.Adds = append(t.Adds, kv.Add{Key: []byte("Afiles")})
	return []txn{t}
}
