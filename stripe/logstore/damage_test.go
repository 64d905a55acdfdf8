package logstore

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
)

// flipped opens a store again after a bit of its content was flipped.
func flipped(t *testing.T, flip func(s *Store, b []byte)) (*Store, error) {
	t.Helper()
	dev := device.NewMemory("flipped", 16<<20)
	opt := Options{Devices: []device.Device{dev}, LogBytes: 1 << 20, Logger: quiet()}
	if _, err := Create(opt); err != nil {
		t.Fatal(err)
	}
	s, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, faultID, 0, bytes.Repeat([]byte{5}, 200_000), stripe.Durable)
	put(t, s, stripe.ObjectID{File: 4}, 0, []byte("small"), stripe.Durable)
	g := s.members[0]
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	flip(&Store{members: []*member{g}}, dev.Bytes())
	s, err = Open(opt)
	if err == nil {
		t.Cleanup(func() { s.Close() })
	}
	return s, err
}

func TestFlippedData(t *testing.T) {
	ctx := context.Background()
	s, err := flipped(t, func(s *Store, b []byte) {
		c, _ := s.members[0].objects[faultID].cluster(1)
		b[s.members[0].g.blockOff(c, 2)+99] ^= 4
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := get(s, faultID, 65_536+2*4096, 10); errs.KindOf(err) != errs.Corrupt {
		t.Fatalf("got %v", err)
	}
	if p, err := get(s, faultID, 65_536+3*4096, 4096); err != nil || p[0] != 5 {
		t.Fatalf("the next block: %v", err)
	}
	var found []Problem
	done, err := s.Scrub(ctx, ScrubOptions{Report: func(p Problem) { found = append(found, p) }})
	if err != nil || done.Problems != 1 || len(found) != 1 || found[0].Off != 65_536+2*4096 {
		t.Fatalf("scrub: %+v %v, %v", done, found, err)
	}
	put(t, s, faultID, 65_536+2*4096, bytes.Repeat([]byte{6}, 4096), stripe.Durable)
	if p, err := get(s, faultID, 65_536+2*4096, 10); err != nil || p[0] != 6 {
		t.Fatalf("after it was written anew: %v", err)
	}
}

func TestFlippedIndex(t *testing.T) {
	t.Run("in one copy of the index", func(t *testing.T) {
		s, err := flipped(t, func(s *Store, b []byte) {
			b[s.members[0].g.tableAt[0]+40] ^= 1
		})
		if err != nil {
			t.Fatal(err)
		}
		if p, err := get(s, faultID, 0, 200_000); err != nil || p[100_000] != 5 {
			t.Fatalf("the second copy does not help: %v", err)
		}
	})
	t.Run("in both copies of the index", func(t *testing.T) {
		s, err := flipped(t, func(s *Store, b []byte) {
			c, _ := s.members[0].objects[faultID].cluster(1)
			for _, at := range s.members[0].g.tableAt {
				b[at+int64(c)*entryBytes+40] ^= 1
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := get(s, faultID, 65_536, 10); errs.KindOf(err) != errs.Corrupt {
			t.Fatalf("zeroes instead of an error: %v", err)
		}
		if p, err := get(s, faultID, 0, 65_536); err != nil || p[0] != 5 {
			t.Fatalf("other clusters: %v", err)
		}
	})
	t.Run("in one superblock", func(t *testing.T) {
		s, err := flipped(t, func(_ *Store, b []byte) { b[70] ^= 1 })
		if err == nil {
			_, err = get(s, faultID, 0, 100)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	t.Run("in both superblocks", func(t *testing.T) {
		_, err := flipped(t, func(_ *Store, b []byte) { b[70] ^= 1; b[4096+70] ^= 1 })
		if errs.KindOf(err) != errs.Corrupt || !strings.Contains(err.Error(), "flipped") {
			t.Fatalf("got %v", err)
		}
	})
	t.Run("a newer format", func(t *testing.T) {
		_, err := flipped(t, func(_ *Store, b []byte) { b[8], b[4096+8] = 9, 9 })
		if errs.KindOf(err) != errs.Version {
			t.Fatalf("got %v", err)
		}
	})
}

// A flip in the log is the end of the log when it is at the end; what came before is there.
func TestFlippedLog(t *testing.T) {
	opt := crashOptions(0)
	dev := freshMemory(t, opt, 3<<20)
	opt.Devices = []device.Device{dev}
	s, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, faultID, 0, bytes.Repeat([]byte{1}, 5000), stripe.Durable)
	head := s.members[0].log.head
	put(t, s, faultID, 0, bytes.Repeat([]byte{2}, 5000), stripe.Durable)
	s.members[0].abandon()
	dev.Bytes()[s.members[0].logOff(head)+5000] ^= 1
	if s, err = Open(opt); err != nil {
		t.Fatal(err)
	}
	defer s.members[0].abandon()
	if p, err := get(s, faultID, 0, 5000); err != nil || p[4999] != 1 {
		t.Fatalf("got %v, %v", p[4999], err)
	}
}
