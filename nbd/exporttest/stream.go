package exporttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/nbd"
)

// keeper is a sink that keeps a few pieces for a while, and looks at them again before it gives
// them back in another order: what is lent must not change, and an export must get on with
// what it has.
type keeper struct {
	off    int64
	length int64
	most   int // pieces kept; 0: each goes back at once
	stop   int // fails after so many pieces; negative: never

	mu    sync.Mutex
	got   []byte
	seen  []bool
	held  []heldPiece
	taken int
	wrong error
}

type heldPiece struct {
	piece nbd.Piece
	bytes []byte
}

var errStop = errors.New("the sink wants no more")

func newKeeper(off, length int64) *keeper {
	return &keeper{off: off, length: length, most: 2, stop: -1, got: make([]byte, length),
		seen: make([]bool, length)}
}

// Deliver implements nbd.Sink.
func (k *keeper) Deliver(p nbd.Piece) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stop >= 0 && k.taken >= k.stop {
		giveBack(p)
		return errStop
	}
	k.taken++
	b, err := bytesOf(p)
	if err == nil {
		err = k.place(p, b)
	}
	if err != nil {
		k.wrong = errors.Join(k.wrong, err)
		giveBack(p)
		return err
	}
	k.held = append(k.held, heldPiece{p, b})
	for len(k.held) > k.most {
		k.returnOne(rand.IntN(len(k.held)))
	}
	// An export may wait for its memory before it delivers more, or ends.
	time.AfterFunc(time.Duration(rand.IntN(2000))*time.Microsecond, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if len(k.held) > 0 {
			k.returnOne(rand.IntN(len(k.held)))
		}
	})
	return nil
}

// place puts a piece's bytes where they belong.
func (k *keeper) place(p nbd.Piece, b []byte) error {
	at := p.Off - k.off
	if at < 0 || p.Len <= 0 || at+p.Len > k.length {
		return fmt.Errorf("a piece of %d at %d in a read of %d at %d", p.Len, p.Off, k.length, k.off)
	}
	for i := at; i < at+p.Len; i++ {
		if k.seen[i] {
			return fmt.Errorf("byte %d was delivered twice", k.off+i)
		}
		k.seen[i] = true
	}
	copy(k.got[at:], b)
	return nil
}

func (k *keeper) returnOne(i int) {
	h := k.held[i]
	k.held[i] = k.held[len(k.held)-1]
	k.held = k.held[:len(k.held)-1]
	now, err := bytesOf(h.piece)
	if h.piece.File == nil && (err != nil || !bytes.Equal(now, h.bytes)) {
		k.wrong = errors.Join(k.wrong, fmt.Errorf("%d bytes at %d changed while they were lent",
			h.piece.Len, h.piece.Off))
	}
	giveBack(h.piece)
}

// end gives everything back and tells what was wrong, or missing where all was to be delivered.
func (k *keeper) end(all bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.held) > 0 {
		k.returnOne(0)
	}
	for i := range k.seen {
		if all && !k.seen[i] {
			return errors.Join(k.wrong, fmt.Errorf("byte %d was not delivered", k.off+int64(i)))
		}
	}
	return k.wrong
}

func giveBack(p nbd.Piece) {
	if p.Lent != nil {
		p.Lent.Return()
	}
}

// bytesOf copies a piece's bytes out of wherever they are.
func bytesOf(p nbd.Piece) ([]byte, error) {
	b := make([]byte, p.Len)
	if p.Data == nil && p.File == nil {
		return b, nil
	}
	if p.Data == nil {
		_, err := p.File.ReadAt(b, p.At)
		return b, err
	}
	joined := bytes.Join(p.Data, nil)
	if int64(len(joined)) != p.Len {
		return nil, fmt.Errorf("a piece of %d bytes says %d", len(joined), p.Len)
	}
	return joined, nil
}

// compareStream reads the range as a stream, if the export has them.
func (m *model) compareStream(t failer, off, length int64) {
	s := nbd.ExtrasOf(m.exp).Streamer
	if s == nil {
		return
	}
	k := newKeeper(off, length)
	if err := s.Stream(context.Background(), off, length, k); err != nil {
		t.Fatalf("Stream(%d, %d): %v", off, length, err)
	}
	if err := k.end(true); err != nil {
		t.Fatalf("Stream(%d, %d): %v", off, length, err)
	}
	same(t, "Stream", off, k.got, m.want[off:off+length])
}

// testStreamStops: a sink that wants no more, or a context that ends, ends the stream; nothing
// stays lent, and the next one works.
func testStreamStops(t *testing.T, open Open) {
	const size = 8 << 20
	exp := open(t, size)
	defer closeExport(t, exp)
	s := nbd.ExtrasOf(exp).Streamer
	if s == nil {
		return // nothing is promised
	}
	want := pattern(3, size)
	ctx := context.Background()
	if err := exp.WriteAt(ctx, want, 0, false); err != nil {
		t.Fatal(err)
	}
	for stop := range 20 {
		k := newKeeper(0, size)
		k.stop = stop / 4
		err := s.Stream(ctx, 0, size, k)
		if bad := k.end(false); bad != nil {
			t.Fatalf("stopped after %d pieces: %v", k.stop, bad)
		}
		if err == nil && k.taken == k.stop && k.stop == 0 {
			t.Fatal("a sink that takes nothing was given all")
		}
	}
	for range 5 {
		ended, cancel := context.WithCancel(ctx)
		k := newKeeper(0, size)
		go cancel()
		err := s.Stream(ended, 0, size, k)
		if bad := k.end(err == nil); bad != nil {
			t.Fatalf("cancelled (%v): %v", err, bad)
		}
		cancel()
	}
	m := &model{exp: exp, want: want}
	m.compareStream(t, 0, size)
}

// testStreamsBeside has more streams at once than fit into memory anywhere, some of them slow, next
// to writes of what they do not read.
func testStreamsBeside(t *testing.T, open Open) {
	const size, streams = 8 << 20, 9
	exp := open(t, size)
	defer closeExport(t, exp)
	s := nbd.ExtrasOf(exp).Streamer
	if s == nil {
		return
	}
	ctx := context.Background()
	m := &model{exp: exp, want: pattern(5, size)}
	if err := exp.WriteAt(ctx, m.want, 0, false); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range streams {
		wg.Go(func() {
			k := newKeeper(0, size/2)
			var to nbd.Sink = k
			if i%3 == 0 {
				to = slowSink{k}
			}
			err := s.Stream(ctx, 0, size/2, to)
			if bad := k.end(err == nil); err != nil || bad != nil {
				t.Errorf("stream %d: %v, %v", i, err, bad)
			} else if !bytes.Equal(k.got, m.want[:size/2]) {
				t.Errorf("stream %d differs at %d", i, firstDifference(k.got, m.want))
			}
		})
	}
	wg.Go(func() {
		for i := range int64(50) {
			p := pattern(uint64(i), 100_000)
			if err := exp.WriteAt(ctx, p, size/2+i*1000, false); err != nil {
				t.Error(err)
			}
			copy(m.want[size/2+i*1000:], p)
		}
	})
	wg.Wait()
	m.compare(t, 0, size)
}

type slowSink struct{ *keeper }

// Deliver implements nbd.Sink.
func (s slowSink) Deliver(p nbd.Piece) error {
	time.Sleep(time.Millisecond)
	return s.keeper.Deliver(p)
}
