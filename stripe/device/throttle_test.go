package device

import (
	"bytes"
	"sync"
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	const ms = time.Millisecond
	type step struct {
		at    time.Duration
		bytes int
		want  time.Duration
	}
	for _, c := range []struct {
		name  string
		o     ThrottleOptions
		steps []step
	}{
		{"no limits", ThrottleOptions{}, []step{{5 * ms, 1 << 20, 5 * ms}}},
		{"rate: transfers follow each other", ThrottleOptions{BytesPerSecond: 1_000_000},
			[]step{{0, 2000, 2 * ms}, {0, 1000, 3 * ms}, {10 * ms, 1000, 11 * ms}}},
		{"latencies overlap", ThrottleOptions{Latency: 5 * ms},
			[]step{{0, 10, 5 * ms}, {1 * ms, 10, 6 * ms}, {1 * ms, 10, 6 * ms}}},
		{"latency overlaps transfer", ThrottleOptions{BytesPerSecond: 1_000_000, Latency: 5 * ms},
			[]step{{0, 10_000, 15 * ms}, {1 * ms, 1000, 16 * ms}, {15 * ms, 1000, 21 * ms}}},
		{"depth one", ThrottleOptions{Latency: 5 * ms, Depth: 1},
			[]step{{0, 10, 5 * ms}, {1 * ms, 10, 10 * ms}, {12 * ms, 10, 17 * ms}}},
		{"depth two", ThrottleOptions{Latency: 5 * ms, Depth: 2},
			[]step{{0, 1, 5 * ms}, {0, 1, 5 * ms}, {0, 1, 10 * ms}, {0, 1, 10 * ms}, {0, 1, 15 * ms}}},
	} {
		p := pace{o: c.o, done: make([]time.Duration, c.o.Depth)}
		for i, s := range c.steps {
			op := Op{Kind: Read, Bufs: [][]byte{make([]byte, s.bytes)}}
			if got := p.next(s.at, &op); got != s.want {
				t.Errorf("%s, operation %d: finished at %v, want %v", c.name, i, got, s.want)
			}
		}
	}
	p := pace{o: ThrottleOptions{BytesPerSecond: 1, Latency: ms}}
	if got := p.next(0, &Op{Kind: Sync}); got != ms {
		t.Errorf("a sync takes %v, want its latency", got)
	}
}

// counting is a device that knows what was begun.
type counting struct {
	*Memory
	mu    sync.Mutex
	begun map[*Op]bool
}

func (c *counting) Begin(ops []*Op) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, op := range ops {
		c.begun[op] = true
	}
	c.Memory.Do(ops)
}

func (c *counting) Wait(op *Op) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.begun, op)
}

// The bytes are those of the device below, whichever way operations are begun, and no operation is
// faster than the pace.
func TestThrottledMovesBytes(t *testing.T) {
	const n, rate = 200_000, 40_000_000 // 5 ms an operation
	below := &counting{Memory: NewMemory("below", 1<<20), begun: map[*Op]bool{}}
	for _, dev := range []Device{NewMemory("plain", 1<<20), below} {
		d := Throttled(dev, ThrottleOptions{BytesPerSecond: rate, Latency: time.Millisecond})
		p := bytes.Repeat([]byte{7}, n)
		begin := time.Now()
		w := Op{Kind: Write, Off: 4096, Bufs: [][]byte{p}}
		if err := One(d, &w); err != nil {
			t.Fatal(err)
		}
		a := Op{Kind: Read, Off: 4096, Bufs: [][]byte{make([]byte, n)}}
		b := Op{Kind: Read, Off: 4096, Bufs: [][]byte{make([]byte, n)}}
		d.Begin([]*Op{&a, &b})
		d.Wait(&b)
		d.Wait(&a)
		if took := time.Since(begin); took < 15*time.Millisecond {
			t.Fatalf("three operations took %v", took)
		}
		if a.Err != nil || b.Err != nil || !bytes.Equal(a.Bufs[0], p) || !bytes.Equal(b.Bufs[0], p) {
			t.Fatal("the bytes differ")
		}
		if len(d.due) != 0 || len(below.begun) != 0 {
			t.Fatal("operations are left")
		}
		_, _, sparse := d.Room()
		if d.Size() != 1<<20 || sparse || d.Fresh() || d.Name() != dev.Name() {
			t.Fatal("it is not like the device below")
		}
	}
}
