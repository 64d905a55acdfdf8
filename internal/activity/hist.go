package activity

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// A histogram of times has four buckets for each power of two, so that a percentile is known to a
// quarter: the first four are 256 ns wide each, bucket 4+4e+m counts those from (4+m)*2^e to
// (5+m)*2^e units of 256 ns. The last one, which has all longer ones, begins at some nine hours.
const (
	unitBits    = 8
	bucketsEnd  = 4 + 4*(45-unitBits-3+1)
	subBits     = 2
	subBuckets  = 1 << subBits
	bucketsLast = bucketsEnd - 1
)

// histogram is the times of one operation.
type histogram struct {
	sum     atomic.Uint64 // nanoseconds
	failed  atomic.Uint64
	longest atomic.Int64
	buckets [bucketsEnd]atomic.Uint64
}

// bucketOf is the bucket that counts a time.
func bucketOf(d time.Duration) int {
	v := uint64(d) >> unitBits
	if v < subBuckets {
		return int(v)
	}
	e := bits.Len64(v) - subBits - 1
	return min(subBuckets+e<<subBits+int(v>>e)&(subBuckets-1), bucketsLast)
}

// boundOf is where a bucket begins.
func boundOf(bucket int) time.Duration {
	if bucket < subBuckets {
		return time.Duration(bucket) << unitBits
	}
	e, m := (bucket-subBuckets)>>subBits, (bucket-subBuckets)&(subBuckets-1)
	return time.Duration(subBuckets+m) << (e + unitBits)
}

func (h *histogram) add(d time.Duration, failed bool) {
	h.buckets[bucketOf(d)].Add(1)
	h.sum.Add(uint64(d))
	if failed {
		h.failed.Add(1)
	}
	for most := h.longest.Load(); int64(d) > most; most = h.longest.Load() {
		if h.longest.CompareAndSwap(most, int64(d)) {
			return
		}
	}
}

// Bucket counts requests that took less than Below, and not less than the bucket before it.
type Bucket struct {
	From  time.Duration `json:"from"`
	Below time.Duration `json:"below"` // nanoseconds, as all durations
	Count uint64        `json:"count"`
}

// read lists the buckets that are not empty.
func (h *histogram) read() (list []Bucket, count uint64) {
	for i := range h.buckets {
		if n := h.buckets[i].Load(); n > 0 {
			list = append(list, Bucket{boundOf(i), boundOf(i + 1), n})
			count += n
		}
	}
	return list, count
}

// Percentile is the time that a share of the requests, from 0 to 1, did not exceed; 0 for none. It
// lies where the bucket's requests would if they were spread over it evenly.
func Percentile(list []Bucket, share float64) time.Duration {
	var total uint64
	for _, b := range list {
		total += b.Count
	}
	rank := share * float64(total)
	for _, b := range list {
		if n := float64(b.Count); rank > n {
			rank -= n
			continue
		}
		return b.From + time.Duration(rank/float64(b.Count)*float64(b.Below-b.From))
	}
	if len(list) == 0 {
		return 0
	}
	return list[len(list)-1].Below
}
