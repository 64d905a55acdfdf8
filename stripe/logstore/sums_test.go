package logstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/alloctest"
	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
	"github.com/sluice-storage/sluice/stripe/device/devicetest"
	"github.com/sluice-storage/sluice/wire"
	"golang.org/x/sys/unix"
)

// plainSums sums p block by block.
func plainSums(p []byte) []uint32 {
	var sums []uint32
	for ; len(p) > 0; p = p[blockBytes:] {
		sums = append(sums, crc32c.Sum(p[:blockBytes]))
	}
	return sums
}

// Given sums are kept as they are: a store that summed again would hide that bytes have changed on
// their way to it. Both paths, log and clusters, before and after they are in place.
func TestGivenSumsAreBelieved(t *testing.T) {
	ctx := context.Background()
	for _, n := range []int{4 * blockBytes, 2 * clusterBytes, 2*clusterBytes + blockBytes} {
		s, _ := faulty(t)
		p := bytes.Repeat([]byte{3}, n)
		sums := plainSums(p)
		sums[2] ^= 1 // of the third block something else was said
		err := s.WriteSums(ctx, faultID, [][]byte{p}, 0, sums, nil, stripe.Durable)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]uint32, 1)
		if n < clusterBytes { // it waits in memory: the reader is given the sum, and will find out
			err = s.ReadSums(ctx, faultID, [][]byte{p[:blockBytes]}, 2*blockBytes, got)
			if err != nil || got[0] != sums[2] {
				t.Fatalf("%d bytes, in memory: sum %08x, want %08x: %v", n, got[0], sums[2], err)
			}
		}
		if err := s.members[0].checkpoint(false); err != nil {
			t.Fatal(err)
		}
		err = s.ReadSums(ctx, faultID, [][]byte{p[:blockBytes]}, 2*blockBytes, got)
		if !errors.Is(err, errs.Corrupt) {
			t.Fatalf("%d bytes: the block that does not fit is read with %v", n, err)
		}
		if s.Stats().ChecksumErrors == 0 {
			t.Fatal("nobody has counted it")
		}
		rest := make([]uint32, 1)
		err = s.ReadSums(ctx, faultID, [][]byte{p[:blockBytes]}, 3*blockBytes, rest)
		if err != nil || rest[0] != sums[3] {
			t.Fatalf("%d bytes: its neighbour has sum %08x, want %08x: %v", n, rest[0], sums[3], err)
		}
	}
}

// Damage on the disk is found by a read with sums too, and no sum of it is told as good.
func TestReadSumsFindsDamage(t *testing.T) {
	s, f := faulty(t)
	put(t, s, faultID, 0, bytes.Repeat([]byte{9}, clusterBytes), stripe.Durable)
	m := s.members[0]
	c, _ := m.objects[faultID].cluster(0)
	f.Device.(*device.Memory).Bytes()[m.g.blockOff(c, 5)+77] ^= 4
	p, sums := make([]byte, clusterBytes), make([]uint32, clusterBlocks)
	err := s.ReadSums(context.Background(), faultID, [][]byte{p}, 0, sums)
	if !errors.Is(err, errs.Corrupt) {
		t.Fatalf("got %v", err)
	}
}

// A store without checksums computes those that it is asked for.
func TestUnsummedStoreSums(t *testing.T) {
	r := newRig(t, Options{LogBytes: 1 << 20, PendingBytes: 1 << 20, Unsummed: true},
		memoryDevices(1, 8<<20, nil))
	defer r.Close()
	ctx := context.Background()
	p := bytes.Repeat([]byte{1, 2, 3, 4}, 2*clusterBytes/4)
	want := plainSums(p)
	err := r.WriteSums(ctx, faultID, [][]byte{p}, 4096, want, nil, stripe.Volatile)
	if err != nil {
		t.Fatal(err)
	}
	q, got := make([]byte, len(p)), make([]uint32, len(want))
	if err := r.ReadSums(ctx, faultID, [][]byte{q}, 4096, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(p, q) || !slices.Equal(got, want) {
		t.Fatal("bytes or sums differ")
	}
}

// A write over two members of which one fails: it is a repeat for the one that has it, and for the
// whole range it is none.
func TestRepeatNeedsEveryMember(t *testing.T) {
	faults := make([]*devicetest.Fault, 2)
	devices := make([]device.Device, 2)
	for i := range faults {
		faults[i] = &devicetest.Fault{Device: device.NewMemory("member", 16<<20)}
		devices[i] = faults[i]
	}
	opt := Options{Devices: devices, LogBytes: 1 << 20, Logger: quiet()}
	if _, err := Create(opt); err != nil {
		t.Fatal(err)
	}
	s, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	unit := s.unit
	ctx, p := context.Background(), bytes.Repeat([]byte{5}, int(2*unit))
	st := []wire.Stamp{{}, {Session: 4, Slot: 1, Seq: 1}}
	bad, _ := s.Place(faultID, unit)
	faults[bad].Fail(func(op *device.Op) error {
		if op.Kind != device.Read {
			return unix.EIO
		}
		return nil
	})
	err = s.WriteSums(ctx, faultID, [][]byte{p}, 0, nil, st, stripe.Durable)
	if errs.KindOf(err) != errs.IO {
		t.Fatalf("the write says %v", err)
	}
	if _, err := s.Admit(ctx, faultID, unit, 10, st[1], 0); errs.KindOf(err) != errs.IO {
		t.Fatalf("the failed member admits: %v", err)
	}
	faults[bad].Fail(nil)
	s.Abandon()
	if s, err = Open(opt); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, x := range []struct {
		off, n int64
		want   bool
	}{{0, 4096, true}, {unit, 4096, false}, {0, 2 * unit, false}} {
		got, err := s.Admit(ctx, faultID, x.off, x.n, st[1], 0)
		if err != nil || got != x.want {
			t.Fatalf("[%d, +%d): repeated %v, %v", x.off, x.n, got, err)
		}
	}
}

// A member of format 1 is opened, and is of this build's format from then on.
func TestOlderFormatIsOpened(t *testing.T) {
	dev := freshMemory(t, crashOptions(), 3<<20)
	mark := func(v uint32) {
		for i := range 2 {
			b := dev.Bytes()[i*blockBytes:][:blockBytes]
			binary.LittleEndian.PutUint32(b[8:], v)
			binary.LittleEndian.PutUint32(b[124:], 0)
			binary.LittleEndian.PutUint32(b[12:], superCRC(b))
		}
	}
	opt := crashOptions()
	opt.Devices = []device.Device{dev}
	for _, v := range []uint32{0, formatVersion + 1} {
		mark(v)
		if _, err := Open(opt); !errors.Is(err, errs.Version) {
			t.Fatalf("format %d: %v", v, err)
		}
	}
	mark(1)
	s, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	if v := binary.LittleEndian.Uint32(dev.Bytes()[8:]); v != formatVersion {
		t.Fatalf("opened, it is of format %d", v)
	}
	if s.unit != unitFirst {
		t.Fatalf("its units are of %d bytes, want those of format 1", s.unit)
	}
	s.Abandon()
}

// Records of the formats before 3 are shorter by the life, and are read.
func TestOlderRecordsAreRead(t *testing.T) {
	g, err := layOut(16<<20, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	r := record{kind: kindWrite, id: stripe.ObjectID{File: 1}, size: 5, number: 9,
		st:     wire.Stamp{Session: 3, Seq: 4, Life: 77},
		blocks: []blockPlace{{block: 3, sum: 8}}, requests: []wire.Stamp{{Session: 1, Slot: 2, Seq: 3}}}
	for _, old := range []bool{false, true} {
		b, life := r.append(nil), uint64(77)
		if old {
			b, life = slices.Delete(b, recordHead2, recordHead), 0
			binary.LittleEndian.PutUint32(b, uint32(len(b)))
			s := super{format: 2, logBytes: g.logBytes, clusters: g.clusters, slots: g.slots}
			g = s.geometry()
		}
		var got record
		rest, err := decodeRecord(b, &g, &got)
		if err != nil || len(rest) != 0 || got.st.Life != life || got.number != r.number ||
			len(got.blocks) != 1 || got.blocks[0].sum != 8 || !slices.Equal(got.requests, r.requests) {
			t.Fatalf("old %v: %+v, %d bytes left: %v", old, got, len(rest), err)
		}
	}
}

// A dump names the requests that a record includes.
func TestDumpNamesRequests(t *testing.T) {
	r := newRig(t, Options{LogBytes: 1 << 20, LateCheckpoints: true}, memoryDevices(1, 4<<20, nil))
	st := []wire.Stamp{{}, {Session: 4, Slot: 1, Seq: 77}}
	err := r.WriteSums(context.Background(), faultID, [][]byte{{1}}, 0, nil, st, stripe.Durable)
	if err != nil {
		t.Fatal(err)
	}
	dev := r.members[0].dev
	r.Abandon()
	var text bytes.Buffer
	if err := Dump(&text, dev, Options{}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "also session 4.1.77") {
		t.Fatalf("the dump is %s", text.String())
	}
}

// Requests with sums, over one member and over several, make no garbage.
func TestSumsAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools drop what they are given")
	}
	ctx := context.Background()
	for _, members := range []int{1, 3} {
		r := newRig(t, Options{LogBytes: 4 << 20, PendingBytes: 4 << 20},
			memoryDevices(members, 64<<20/int64(members)+8<<20, nil))
		p := alignedBytes(1<<20 + 8192)
		for range 100 { // all clusters and pages were in use once
			put(t, r.Store, faultID, 0, p, stripe.Volatile)
		}
		sums := plainSums(p)
		bufs, small := [][]byte{p[:1<<19], p[1<<19:]}, [][]byte{p[:4096]}
		stamps := []wire.Stamp{{}, {Session: 3, Slot: 1}, {Session: 3, Slot: 2}}
		for _, c := range []struct {
			name string
			fn   func() error
		}{
			{"write", func() error {
				stamps[1].Seq++
				return r.WriteSums(ctx, faultID, bufs, 4096, sums, stamps, stripe.Volatile)
			}},
			{"read", func() error { return r.ReadSums(ctx, faultID, bufs, 4096, sums) }},
			{"small write", func() error {
				return r.WriteSums(ctx, faultID, small, 4096, sums[:1], stamps, stripe.Volatile)
			}},
			{"small read", func() error { return r.ReadSums(ctx, faultID, small, 4096, sums[:1]) }},
			{"plain write", func() error {
				return r.WriteAt(ctx, faultID, bufs, 4096, wire.Stamp{}, stripe.Volatile)
			}},
			{"admit", func() error {
				_, err := r.Admit(ctx, faultID, 4096, 1<<20, stamps[1], clusterBytes)
				return err
			}},
		} {
			do := func() {
				if err := c.fn(); err != nil {
					t.Fatal(err)
				}
			}
			do()
			n := alloctest.PerRun(0, 100, do) // what a checkpoint makes is less than one a request
			if n >= 1 {
				t.Errorf("%d members: a %s makes %v allocations", members, c.name, n)
			}
		}
		r.Close()
	}
}
