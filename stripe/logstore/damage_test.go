package logstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
	"github.com/sluice-storage/sluice/stripe/device/devicetest"
	"github.com/sluice-storage/sluice/wire"
)

// damaged is a store in which everything is in use: superblocks, sessions, index, data, and a log
// that a restart must read. It was not closed.
type damaged struct {
	opt     Options
	content []byte
	m       *member // as it was: where everything lies
	batches []uint64
}

var (
	smallID = stripe.ObjectID{File: 4, Gen: 1}
	lastID  = stripe.ObjectID{File: 5, Gen: 1} // the log's last batch, which nothing vouches for
)

func newDamaged(t testing.TB) *damaged {
	t.Helper()
	d := &damaged{opt: Options{LogBytes: logBytesMin, PendingBytes: 1 << 20, Logger: quiet()}}
	dev := freshMemory(t, d.opt, 4<<20)
	d.opt.Devices = []device.Device{dev}
	s, err := Open(d.opt)
	if err != nil {
		t.Fatal(err)
	}
	d.m = s.members[0]
	numbered := wire.Stamp{Session: 3, Slot: 1, Seq: 9}
	err = s.WriteAt(context.Background(), faultID, [][]byte{damagedData()[:150_000]}, 0, numbered, 1)
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, smallID, 0, []byte("older"), stripe.Durable)
	if err := d.m.checkpoint(false); err != nil {
		t.Fatal(err)
	}
	for _, w := range []struct {
		id  stripe.ObjectID
		off int64
		p   []byte
	}{
		{faultID, 150_000, damagedData()[150_000:]}, {smallID, 0, []byte("small")},
		{faultID, 8192, damagedData()[8192:12_288]}, {lastID, 0, []byte("last")},
	} {
		d.batches = append(d.batches, d.m.log.head)
		put(t, s, w.id, w.off, w.p, stripe.Durable)
	}
	d.m.abandon()
	d.content = dev.Bytes()
	return d
}

func damagedData() []byte {
	p := make([]byte, 200_000)
	for i := range p {
		p[i] = byte(i>>8) + byte(i) | 1
	}
	return p
}

// open opens a copy of the store after fn has changed it.
func (d *damaged) open(t *testing.T, salvage bool, fn func(b []byte)) (*Store, error) {
	t.Helper()
	b := bytes.Clone(d.content)
	fn(b)
	opt := d.opt
	opt.Salvage = salvage
	opt.Devices = []device.Device{device.NewMemoryOf("damaged", b)}
	s, err := Open(opt)
	if err != nil {
		for _, want := range []string{"damaged", "restore"} {
			if !strings.Contains(err.Error(), want) {
				t.Fatalf("the error does not say %q: %v", want, err)
			}
		}
		return nil, err
	}
	t.Cleanup(func() { s.members[0].abandon() })
	return s, nil
}

func (d *damaged) mustOpen(t *testing.T, fn func(b []byte)) *Store {
	t.Helper()
	s, err := d.open(t, false, fn)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wrong reads everything: each block is right or an error. It tells what is not, and how many
// errors there were.
func wrong(s *Store) (failed int, err error) {
	want := damagedData()
	for off := 0; off < len(want); off += blockBytes {
		end := min(off+blockBytes, len(want))
		p, err := get(s, faultID, int64(off), end-off)
		switch {
		case errs.KindOf(err) == errs.Corrupt:
			failed++
		case err != nil:
			return failed, err
		case !bytes.Equal(p, want[off:end]):
			return failed, fmt.Errorf("wrong bytes at offset %d", off)
		}
	}
	p, err := get(s, smallID, 0, 5)
	if errs.KindOf(err) == errs.Corrupt {
		return failed + 1, nil
	}
	if err == nil && string(p) != "small" {
		err = fmt.Errorf("small object is %q", p)
	}
	return failed, err
}

// used lists the blocks of the device that hold something.
func (d *damaged) used() []int64 {
	var list []int64
	for off := int64(0); off < int64(len(d.content)); off += blockBytes {
		if !allZero(d.content[off : off+blockBytes]) {
			list = append(list, off)
		}
	}
	return list
}

// TestCrashDamageAnywhere flips bits, and loses blocks and sectors, wherever there is something:
// what is read afterwards is right, or an error; and a store that does not open says what to do.
func TestCrashDamageAnywhere(t *testing.T) {
	seed := seedOf(t, "LOGSTORE_SEED")
	d := newDamaged(t)
	used := d.used()
	rnd := rand.New(rand.NewPCG(seed, 5))
	refused, failed := 0, 0
	for i := range numberOf("LOGSTORE_SEEDS", 600) {
		off := used[i%len(used)]
		dev := devicetest.NewOverlay("damaged", d.content)
		b := alignedBytes(blockBytes)
		copy(b, d.content[off:])
		what := "a flipped bit"
		switch rnd.IntN(4) {
		case 0:
			what = "a lost block"
			clear(b)
		case 1:
			what = "a lost sector"
			at := rnd.IntN(8) * devicetest.SectorBytes
			for k := range devicetest.SectorBytes {
				b[at+k] = byte(rnd.Uint32())
			}
		default:
			b[rnd.IntN(blockBytes)] ^= 1 << rnd.IntN(8)
		}
		op := device.Op{Kind: device.Write, Off: off, Bufs: [][]byte{b}}
		if err := device.One(dev, &op); err != nil {
			t.Fatal(err)
		}
		opt := d.opt
		opt.Devices = []device.Device{dev}
		s, err := Open(opt)
		if err != nil {
			if errs.KindOf(err) != errs.Corrupt || !strings.Contains(err.Error(), "restore") {
				t.Fatalf("seed %d, round %d: %s at %d: %v", seed, i, what, off, err)
			}
			refused++
			continue
		}
		n, err := wrong(s)
		s.members[0].abandon()
		if err != nil {
			t.Fatalf("seed %d, round %d: %s at %d: %v", seed, i, what, off, err)
		}
		failed += n
	}
	t.Logf("%d stores refused, %d blocks failed", refused, failed)
	if refused == 0 || failed == 0 {
		t.Fatal("nothing was hit")
	}
}

func TestDamagedData(t *testing.T) {
	d := newDamaged(t)
	s := d.mustOpen(t, func(b []byte) {
		c, _ := d.m.objects[faultID].cluster(1)
		b[d.m.g.blockOff(c, 2)+99] ^= 4
	})
	const off = 65_536 + 2*4096
	if _, err := get(s, faultID, off, 10); errs.KindOf(err) != errs.Corrupt {
		t.Fatalf("got %v", err)
	}
	if n, err := wrong(s); n != 1 || err != nil {
		t.Fatalf("%d blocks fail, %v", n, err)
	}
	var found []Problem
	done, err := s.Scrub(context.Background(), ScrubOptions{
		Report: func(p Problem) { found = append(found, p) }})
	if err != nil || done.Problems != 1 || len(found) != 1 || found[0].Off != off {
		t.Fatalf("scrub: %+v %v, %v", done, found, err)
	}
	put(t, s, faultID, off, damagedData()[off:off+4096], stripe.Durable)
	if n, err := wrong(s); n != 0 || err != nil {
		t.Fatalf("written anew, %d blocks fail, %v", n, err)
	}
}

// A superblock, the sessions and the index are there twice: one copy is enough, and after the store
// was opened there are two again.
func TestDamagedCopies(t *testing.T) {
	d := newDamaged(t)
	g := &d.m.g
	for _, c := range []struct {
		name string
		at   int64
	}{
		{"first superblock", 70}, {"second superblock", blockBytes + 70},
		{"format of the first superblock", 8}, {"magic of the second superblock", blockBytes},
		{"first copy of the sessions", sessionsOff(d.m.super.seq, 0) + 3},
		{"second copy of the sessions", sessionsOff(d.m.super.seq, 1) + 3},
		{"first copy of the index", g.tableAt[0] + 50},
		{"second copy of the index", g.tableAt[1] + 50},
		{"slots in the first copy", g.tableAt[0] + int64(g.clusters)*entryBytes + 33},
		{"slots in the second copy", g.tableAt[1] + int64(g.clusters)*entryBytes + 33},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b []byte
			s := d.mustOpen(t, func(all []byte) { b = all; b[c.at] ^= 1 })
			if n, err := wrong(s); n != 0 || err != nil {
				t.Fatalf("%d blocks fail, %v", n, err)
			}
			if done, err := s.Scrub(context.Background(), ScrubOptions{}); err != nil {
				t.Fatalf("%+v, %v", done, err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			opt := d.opt
			opt.Devices = []device.Device{device.NewMemoryOf("repaired", b)}
			done, err := Check(context.Background(), opt, func(p Problem) { t.Error(p) })
			if err != nil || done.Problems != 0 {
				t.Fatalf("it is not repaired: %+v, %v", done, err)
			}
		})
	}
}

// What check says of damage that opening the store would repair, or not.
func TestCheckFindsDamage(t *testing.T) {
	d := newDamaged(t)
	g := &d.m.g
	for _, c := range []struct {
		name string
		at   []int64
		says string
	}{
		{"a superblock", []int64{70}, "opening the store repairs it"},
		{"sessions", []int64{sessionsOff(d.m.super.seq, 1) + 3}, "opening the store repairs it"},
		{"the second copy of the index", []int64{g.tableAt[1] + 50}, "a scrub repairs it"},
		{"both copies of the index", []int64{g.tableAt[0] + 50, g.tableAt[1] + 50}, "restore"},
		{"data", []int64{g.dataAt + 5}, "restore the range"},
		{"data in the log", []int64{d.m.logOff(d.batches[1]) + blockBytes}, "restore the range"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := bytes.Clone(d.content)
			for _, at := range c.at {
				b[at] ^= 1
			}
			before := bytes.Clone(b)
			opt := d.opt
			opt.Devices = []device.Device{device.NewMemoryOf("damaged", b)}
			var said []string
			done, err := Check(context.Background(), opt, func(p Problem) {
				said = append(said, p.String())
			})
			text := strings.Join(said, "\n")
			if err != nil || done.Problems != uint64(len(said)) || len(said) == 0 {
				t.Fatalf("%+v, %v, %s", done, err, text)
			}
			if !strings.Contains(text, c.says) || !strings.Contains(text, "damaged: ") {
				t.Fatalf("check says: %s", text)
			}
			if !bytes.Equal(b, before) {
				t.Fatal("check has changed the store")
			}
		})
	}
}

// Both copies of entries of the index are gone: nothing that they may have held reads as zeroes.
func TestLostIndex(t *testing.T) {
	d := newDamaged(t)
	flip := func(entry int64) func(b []byte) {
		return func(b []byte) {
			for _, at := range d.m.g.tableAt {
				b[at+entry*entryBytes+40] ^= 1
			}
		}
	}
	c, _ := d.m.objects[faultID].cluster(1)
	slot := int64(d.m.g.clusters) + int64(d.m.objects[faultID].slot)
	t.Run("a cluster", func(t *testing.T) {
		s := d.mustOpen(t, flip(int64(c)))
		if n, err := wrong(s); err != nil || n != 16 {
			t.Fatalf("%d blocks fail, %v", n, err)
		}
		list, err := s.Map(context.Background(), faultID, 0, 200_000, 10)
		if err != nil || len(list) != 1 || list[0].Hole {
			t.Fatalf("the map says %v, %v", list, err)
		}
	})
	t.Run("an object", func(t *testing.T) {
		s := d.mustOpen(t, func(b []byte) {
			flip(slot)(b)
			binary.LittleEndian.PutUint32(b[d.m.logOff(d.batches[0]):], 0) // no record brings it back
			clear(b[logAt : logAt+d.m.g.logBytes])
		})
		if _, err := get(s, faultID, 0, 4096); errs.KindOf(err) != errs.Corrupt {
			t.Fatalf("zeroes instead of an error: %v", err)
		}
		if _, err := s.Stat(context.Background(), faultID); errs.KindOf(err) != errs.Corrupt {
			t.Fatalf("the size of a lost object: %v", err)
		}
		if p, err := get(s, smallID, 0, 5); err != nil || string(p) != "older" {
			t.Fatalf("another object: %q, %v", p, err)
		}
	})
	t.Run("salvage", func(t *testing.T) {
		s, err := d.open(t, true, flip(int64(c)))
		if err != nil {
			t.Fatal(err)
		}
		if p, err := get(s, faultID, 65_536, 4096); err != nil || p[0] != 0 {
			t.Fatalf("got %v", err)
		}
	})
}

func TestDamagedLog(t *testing.T) {
	d := newDamaged(t)
	flip := func(batch int, at int64) func(b []byte) {
		return func(b []byte) { b[d.m.logOff(d.batches[batch])+at] ^= 1 }
	}
	t.Run("a header in the middle", func(t *testing.T) {
		if _, err := d.open(t, false, flip(1, 60)); errs.KindOf(err) != errs.Corrupt {
			t.Fatalf("durable records are missing: %v", err)
		}
		s, err := d.open(t, true, flip(1, 60))
		if err != nil {
			t.Fatal(err)
		}
		if p, err := get(s, smallID, 0, 5); err != nil || string(p) != "older" {
			t.Fatalf("got %q, %v", p, err)
		}
		// What lies behind the damage does not trouble the next restart.
		put(t, s, smallID, 0, []byte("newer"), stripe.Durable)
		s.members[0].abandon()
		opt := d.opt
		opt.Devices = []device.Device{s.members[0].dev}
		if s, err = Open(opt); err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if p, err := get(s, smallID, 0, 5); err != nil || string(p) != "newer" {
			t.Fatalf("got %q, %v", p, err)
		}
	})
	t.Run("data in the middle", func(t *testing.T) {
		s := d.mustOpen(t, flip(1, blockBytes+1))
		if _, err := get(s, smallID, 0, 5); errs.KindOf(err) != errs.Corrupt {
			t.Fatalf("got %v", err)
		}
		if n, err := wrong(s); n != 1 || err != nil {
			t.Fatalf("%d blocks fail, %v", n, err)
		}
		put(t, s, smallID, 0, bytes.Repeat([]byte("small"), 2000)[:4096], stripe.Durable)
		if n, err := wrong(s); n != 0 || err != nil {
			t.Fatalf("written anew, %d blocks fail, %v", n, err)
		}
	})
	t.Run("at the end", func(t *testing.T) {
		// It looks like a batch that a crash has torn: what came before is there.
		s := d.mustOpen(t, flip(3, blockBytes+1))
		if n, err := wrong(s); n != 0 || err != nil {
			t.Fatalf("%d blocks fail, %v", n, err)
		}
		if p, err := get(s, lastID, 0, 4); err != nil || p[0] != 0 {
			t.Fatalf("got %q, %v", p, err)
		}
	})
}

func TestOtherFormats(t *testing.T) {
	d := newDamaged(t)
	for i := range 2 {
		b := bytes.Clone(d.content)
		p := b[i*blockBytes:]
		p[8] = 9
		binary.LittleEndian.PutUint32(p[12:], superCRC(p))
		opt := d.opt
		opt.Devices = []device.Device{device.NewMemoryOf("newer", b)}
		_, err := Open(opt)
		if errs.KindOf(err) != errs.Version || !strings.Contains(err.Error(), "newer") {
			t.Fatalf("got %v", err)
		}
	}
}
