package logstore

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
	"github.com/sluice-storage/sluice/stripe/device/devicetest"
	"github.com/sluice-storage/sluice/wire"
	"golang.org/x/sys/unix"
)

// faulty opens a store of 16 MiB on a device that can fail.
func faulty(t *testing.T) (*Store, *devicetest.Fault) {
	t.Helper()
	return faultyTells(t, quiet())
}

// faultyTells is the same with somebody who listens.
func faultyTells(t *testing.T, log *slog.Logger) (*Store, *devicetest.Fault) {
	t.Helper()
	f := &devicetest.Fault{Device: device.NewMemory("faulty", 16<<20)}
	opt := Options{Devices: []device.Device{f}, LogBytes: 1 << 20, PendingBytes: 1 << 20,
		Logger: log}
	if _, err := Create(opt); err != nil {
		t.Fatal(err)
	}
	s, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, f
}

func put(t testing.TB, s *Store, id stripe.ObjectID, off int64, p []byte, d stripe.Durability) {
	t.Helper()
	if err := s.WriteAt(context.Background(), id, [][]byte{p}, off, wire.Stamp{}, d); err != nil {
		t.Fatal(err)
	}
}

func get(s *Store, id stripe.ObjectID, off int64, n int) ([]byte, error) {
	p := make([]byte, n)
	return p, s.ReadAt(context.Background(), id, [][]byte{p}, off)
}

var faultID = stripe.ObjectID{File: 3, Gen: 1}

// A failed write or sync stops the member: nobody knows what it would build upon. Reads go on.
func TestFailedWritesStopTheMember(t *testing.T) {
	remedies := map[unix.Errno]string{unix.EIO: "replace it", unix.ENOSPC: "free space",
		unix.EROFS: "read-only"}
	for errno, remedy := range remedies {
		for _, kind := range []struct {
			name string
			hit  func(op *device.Op) bool
		}{
			{"write", func(op *device.Op) bool { return op.Kind == device.Write }},
			{"sync", func(op *device.Op) bool { return op.Kind == device.Sync }},
		} {
			t.Run(errno.Error()+" "+kind.name, func(t *testing.T) {
				var told bytes.Buffer
				s, f := faultyTells(t, slog.New(slog.NewTextHandler(&told, nil)))
				put(t, s, faultID, 0, bytes.Repeat([]byte{7}, 100_000), stripe.Durable)
				f.Fail(func(op *device.Op) error {
					if kind.hit(op) {
						return errno
					}
					return nil
				})
				ctx := context.Background()
				big := make([]byte, 70_000)
				_ = s.WriteAt(ctx, faultID, [][]byte{big}, 0, wire.Stamp{}, stripe.Volatile)
				err := s.Sync(ctx, faultID)
				f.Fail(nil)
				if errs.KindOf(err) != errs.IO || !strings.Contains(err.Error(), "faulty") {
					t.Fatalf("the sync says %v", err)
				}
				err = s.WriteAt(ctx, faultID, [][]byte{{1}}, 0, wire.Stamp{}, stripe.Volatile)
				if errs.KindOf(err) != errs.IO || !strings.Contains(err.Error(), "restart") {
					t.Fatalf("a later write says %v", err)
				}
				if err := s.Truncate(ctx, faultID, 0, wire.Stamp{TruncSeq: 1}); err == nil {
					t.Fatal("a later truncate was acknowledged")
				}
				if _, err := get(s, faultID, 70_000, 1000); err != nil {
					t.Fatalf("reads do not go on: %v", err)
				}
				if err := s.Close(); err == nil {
					t.Fatal("closing says that all is well")
				}
				text := told.String()
				if strings.Count(text, "store member stopped") != 1 || !strings.Contains(text, remedy) {
					t.Fatalf("people were told: %s", text)
				}
			})
		}
	}
}

func TestReadErrorsConcernTheirRead(t *testing.T) {
	s, f := faulty(t)
	put(t, s, faultID, 0, bytes.Repeat([]byte{7}, 200_000), stripe.Durable)
	f.Fail(func(op *device.Op) error {
		if op.Kind == device.Read {
			return unix.EIO
		}
		return nil
	})
	if _, err := get(s, faultID, 65_536, 4096); errs.KindOf(err) != errs.IO {
		t.Fatalf("got %v", err)
	}
	f.Fail(nil)
	put(t, s, faultID, 0, []byte{1, 2, 3}, stripe.Durable)
	if p, err := get(s, faultID, 65_536, 4096); err != nil || p[0] != 7 {
		t.Fatalf("after the error: %v, %v", p[0], err)
	}
}

// Overwriting what is allocated works when there is no room left; more does not, nothing breaks.
func TestFullStore(t *testing.T) {
	s, _ := faulty(t)
	ctx := context.Background()
	chunk := bytes.Repeat([]byte{9}, 1<<20)
	var size int64
	for {
		err := s.WriteAt(ctx, faultID, [][]byte{chunk}, size, wire.Stamp{}, stripe.Durable)
		if errs.KindOf(err) == errs.NoSpace {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		size += int64(len(chunk))
	}
	for size%(1<<20) == 0 || size%65_536 == 0 { // up to the last cluster
		err := s.WriteAt(ctx, faultID, [][]byte{chunk[:4096]}, size, wire.Stamp{}, stripe.Durable)
		if errs.KindOf(err) == errs.NoSpace {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		size += 65_536
	}
	if size < 8<<20 {
		t.Fatalf("full after %d bytes", size)
	}
	for i := range 40 {
		off := rand.Int64N(8) << 20
		p := bytes.Repeat([]byte{byte(i)}, 300_000)
		if err := s.WriteAt(ctx, faultID, [][]byte{p}, off+int64(i)*1000, wire.Stamp{},
			stripe.Durability(i%3)); err != nil {
			t.Fatalf("overwriting in a full store: %v", err)
		}
		if got, err := get(s, faultID, off+int64(i)*1000, len(p)); err != nil || !bytes.Equal(got, p) {
			t.Fatalf("what was overwritten in a full store differs: %v", err)
		}
	}
	if err := s.Truncate(ctx, faultID, 1<<20, wire.Stamp{TruncSeq: 1}); err != nil {
		t.Fatalf("truncating in a full store: %v", err)
	}
	err := s.WriteAt(ctx, faultID, [][]byte{chunk}, 2<<20, wire.Stamp{TruncSeq: 1}, stripe.Durable)
	if err != nil {
		t.Fatalf("what was freed cannot be used: %v", err)
	}
}

// A file system that is full when more space is wanted refuses the write, and only that.
func TestReserveFails(t *testing.T) {
	f := &devicetest.Fault{Device: device.NewMemory("file", 300<<20)}
	opt := Options{Devices: []device.Device{f}, LogBytes: 1 << 20, Logger: quiet()}
	if _, err := Create(opt); err != nil {
		t.Fatal(err)
	}
	s, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	put(t, s, faultID, 0, []byte{1}, stripe.Durable)
	f.Full(errs.New(errs.NoSpace, "reserve", "file", unix.ENOSPC))
	ctx := context.Background()
	chunk := make([]byte, 4<<20)
	for off := int64(0); err == nil; off += int64(len(chunk)) {
		err = s.WriteAt(ctx, faultID, [][]byte{chunk}, off, wire.Stamp{}, stripe.Volatile)
	}
	if errs.KindOf(err) != errs.NoSpace {
		t.Fatalf("got %v", err)
	}
	put(t, s, faultID, 0, chunk, stripe.Durable) // what is there can be overwritten
	f.Full(nil)
	put(t, s, faultID, 200<<20, chunk, stripe.Durable)
}

// What cannot be read when a store is opened: a second copy helps, or the error names the place.
func TestReadErrorsAtOpen(t *testing.T) {
	d := newDamaged(t)
	g := &d.m.g
	for _, c := range []struct {
		name    string
		lo, hi  int64
		refused bool
	}{
		{"first superblock", 0, blockBytes, false},
		{"second superblock", blockBytes, 2 * blockBytes, false},
		{"both superblocks", 0, 2 * blockBytes, true},
		{"first sessions", sessionsOff(d.m.super.seq, 0), sessionsOff(d.m.super.seq, 1), false},
		{"log", logAt, g.tableAt[0], true},
		{"first index", g.tableAt[0], g.tableAt[1], false},
		{"second index", g.tableAt[1], g.dataAt, false},
		{"both", g.tableAt[0], g.dataAt, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &devicetest.Fault{Device: devicetest.NewOverlay("unreadable", d.content)}
			f.Fail(func(op *device.Op) error {
				if op.Kind == device.Read && op.Off >= c.lo && op.Off < c.hi {
					return unix.EIO
				}
				return nil
			})
			opt := d.opt
			opt.Devices = []device.Device{f}
			s, err := Open(opt)
			if err == nil {
				defer s.members[0].abandon()
			}
			if c.refused {
				if errs.KindOf(err) != errs.IO || !strings.Contains(err.Error(), "unreadable") {
					t.Fatalf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if n, err := wrong(s); n != 0 || err != nil {
				t.Fatalf("%d blocks fail, %v", n, err)
			}
		})
	}
}

// A device that stalls holds requests up and breaks nothing.
func TestStall(t *testing.T) {
	dev := device.NewMemory("stalls", 16<<20)
	slow := &devicetest.Throttle{Device: dev, Delay: func(ops []*device.Op) time.Duration {
		if ops[0].Kind != device.Read && rand.IntN(8) == 0 {
			return 30 * time.Millisecond
		}
		return 0
	}}
	opt := Options{Devices: []device.Device{slow}, LogBytes: 1 << 20, Logger: quiet()}
	if _, err := Create(opt); err != nil {
		t.Fatal(err)
	}
	s, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 40 {
		p := bytes.Repeat([]byte{byte(i + 1)}, 20_000)
		put(t, s, faultID, int64(i%4)*30_000, p, stripe.Durable)
		if got, err := get(s, faultID, int64(i%4)*30_000, len(p)); err != nil || !bytes.Equal(got, p) {
			t.Fatalf("write %d: %v", i, err)
		}
	}
}

// A disk that stops answering writes for a long time: who wants durability waits, reads go on, who
// loses patience while there is no room is let go, and when the disk is back all is as it was said.
func TestStalledDevice(t *testing.T) {
	gate := make(chan struct{})
	var once sync.Once
	back := func() { once.Do(func() { close(gate) }) }
	var stalled atomic.Bool
	slow := &devicetest.Fault{Device: device.NewMemory("stalled", 16<<20)}
	opt := Options{Devices: []device.Device{slow}, LogBytes: logBytesMin, PendingBytes: 1 << 20,
		Logger: quiet()}
	if _, err := Create(opt); err != nil {
		t.Fatal(err)
	}
	s, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	defer back()
	put(t, s, faultID, 0, bytes.Repeat([]byte{1}, 200_000), stripe.Durable)
	slow.Fail(func(op *device.Op) error {
		if stalled.Load() && op.Kind != device.Read {
			<-gate
		}
		return nil
	})
	stalled.Store(true)
	const writers = 30 // more than the log has room for
	acked := make(chan error, writers)
	for i := range writers {
		go func() {
			p := bytes.Repeat([]byte{byte(i + 2)}, 30_000)
			acked <- s.WriteAt(context.Background(), smallID, [][]byte{p}, int64(i)*30_000,
				wire.Stamp{}, stripe.Durable)
		}()
	}
	for m := s.members[0]; ; time.Sleep(time.Millisecond) { // until the log has no room for one more
		m.mu.Lock()
		used := int64(m.log.head-m.log.tail) + m.log.promise
		m.mu.Unlock()
		if used+36_864 > m.g.logBytes-2*m.g.batchBytesMax() {
			break
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	err = s.WriteAt(ctx, lastID, [][]byte{make([]byte, 30_000)}, 0, wire.Stamp{}, stripe.Volatile)
	if k := errs.KindOf(err); k != errs.Canceled && k != errs.TimedOut {
		t.Fatalf("who loses patience is told %v", err)
	}
	if p, err := get(s, faultID, 100_000, 4096); err != nil || p[0] != 1 {
		t.Fatalf("reads do not go on: %v", err)
	}
	select {
	case err := <-acked:
		t.Fatalf("acknowledged while the disk does not answer: %v", err)
	default:
	}
	stalled.Store(false)
	back()
	for range writers {
		if err := <-acked; err != nil {
			t.Fatal(err)
		}
	}
	for i := range writers {
		if p, err := get(s, smallID, int64(i)*30_000, 30_000); err != nil || p[29_999] != byte(i+2) {
			t.Fatalf("write %d: %v", i, err)
		}
	}
}

// A fence that could not be made durable is not known: asking again must not be answered with what
// is in memory only.
func TestFailedFenceIsNotKnown(t *testing.T) {
	s, _ := faulty(t)
	ctx := context.Background()
	for i := range uint64(slotsMin) {
		put(t, s, stripe.ObjectID{File: 100 + i}, 0, nil, stripe.Volatile)
	}
	for range 2 {
		if err := s.SetMinGeneration(ctx, 7, 3); errs.KindOf(err) != errs.NoSpace {
			t.Fatalf("all slots are taken, and the fence says %v", err)
		}
		err := s.WriteAt(ctx, stripe.ObjectID{File: 7, Gen: 2}, [][]byte{{1}}, 0, wire.Stamp{}, 0)
		if errs.KindOf(err) != errs.Fenced {
			t.Fatalf("a fence on its way lets requests pass: %v", err)
		}
	}
	if err := s.Remove(ctx, stripe.ObjectID{File: 100}); err != nil {
		t.Fatal(err)
	}
	if err := s.SetMinGeneration(ctx, 7, 3); err != nil {
		t.Fatal(err)
	}
}
