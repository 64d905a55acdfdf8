package filestore

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"os"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"pgregory.net/rapid"
)

func TestHeaderSurvives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := header{
			id: stripe.ObjectID{
				File: rapid.Uint64().Draw(t, "file"), Gen: rapid.Uint32().Draw(t, "gen"),
				Stripe: rapid.Uint32().Draw(t, "stripe"),
			},
			truncSeq: rapid.Uint64().Draw(t, "seq"),
			epoch:    rapid.Uint32().Draw(t, "epoch"),
			pending:  rapid.Bool().Draw(t, "pending"),
		}
		if h.pending {
			h.target = rapid.Int64Range(0, stripe.MaxObjectBytes).Draw(t, "target")
			h.before = rapid.Uint64().Draw(t, "before")
		}
		b := h.encode()
		got, ok, err := decodeHeader(b, h.id)
		if err != nil || !ok || got != h {
			t.Fatalf("got %+v, %v, %v, want %+v", got, ok, err, h)
		}
		b[rapid.IntRange(0, headerBytes-1).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if _, ok, err := decodeHeader(b, h.id); ok && err == nil {
			t.Fatal("a flipped bit was not noticed")
		}
	})
}

func TestNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := stripe.ObjectID{
			File: rapid.Uint64().Draw(t, "file"), Gen: rapid.Uint32().Draw(t, "gen"),
			Stripe: rapid.Uint32().Draw(t, "stripe"),
		}
		if got, ok := parseName(nameOf(id)); !ok || got != id {
			t.Fatalf("%v became %v", id, got)
		}
	})
	for _, bad := range []string{"", "x", "0000000000000001.00000001.0000000g", nameOf(one) + "0"} {
		if _, ok := parseName(bad); ok {
			t.Errorf("%q was taken for an object", bad)
		}
	}
}

// fencesFile makes a store with two fences and returns its file.
func fencesFile(t testing.TB) (dir, storeID string, raw []byte) {
	dir = t.TempDir()
	s := mustOpen(t, Options{Dir: dir})
	for f := range uint64(2) {
		if err := s.SetMinGeneration(context.Background(), f+1, 5); err != nil {
			t.Fatal(err)
		}
	}
	storeID = hex.EncodeToString(s.fences.storeID[:])
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(s.fences.path())
	if err != nil {
		t.Fatal(err)
	}
	return dir, storeID, raw
}

func TestTornAndDamagedFences(t *testing.T) {
	dir, _, raw := fencesFile(t)
	for _, c := range []struct {
		name string
		file []byte
		want errs.Kind
		left int
	}{
		{"torn end", raw[:len(raw)-3], errs.OK, 1},
		{"garbage end", append(bytes.Clone(raw), 1, 2, 3), errs.OK, 2},
		{"bad last record", flip(raw, len(raw)-1), errs.OK, 1},
		{"bad record inside", flip(raw, fencesHeaderBytes+3), errs.Corrupt, 0},
		{"bad header", flip(raw, 9), errs.Corrupt, 0},
		{"nothing", nil, errs.Corrupt, 0},
	} {
		if err := os.WriteFile(dir+"/"+fencesName, c.file, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(Options{Dir: dir})
		if errs.KindOf(err) != c.want {
			t.Fatalf("%s: got %v, want kind %q", c.name, err, c.want)
		}
		if err != nil {
			continue
		}
		if n := len(s.fences.minGen); n != c.left {
			t.Errorf("%s: %d fences are left, want %d", c.name, n, c.left)
		}
		if err := s.SetMinGeneration(context.Background(), 77, 1); err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
}

func flip(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 0x10
	return b
}

func TestFencesAreWrittenAnew(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, Options{Dir: dir})
	const last = 3 * fencesSlack
	for gen := range uint32(last) {
		if err := s.SetMinGeneration(context.Background(), 1, gen+1); err != nil {
			t.Fatal(err)
		}
	}
	if s.fences.records > 2*fencesSlack {
		t.Fatalf("%d records for one fence", s.fences.records)
	}
	s.Close()
	s = mustOpen(t, Options{Dir: dir})
	defer s.Close()
	old := stripe.ObjectID{File: 1, Gen: last - 1}
	if _, err := s.Stat(context.Background(), old); !errors.Is(err, errs.Fenced) {
		t.Fatalf("got %v, want fenced", err)
	}
}

func FuzzDecodeHeader(f *testing.F) {
	plain := header{id: one, truncSeq: 5}
	pending := header{id: one, truncSeq: 6, pending: true, target: 100, before: 5}
	f.Add(plain.encode())
	f.Add(pending.encode())
	f.Add(make([]byte, headerBytes))
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok, err := decodeHeader(b, one)
		if err != nil || !ok {
			return
		}
		if !bytes.Equal(h.encode(), b[:headerBytes]) {
			t.Fatal("an accepted header does not encode to itself")
		}
	})
}

func FuzzDecodeFences(f *testing.F) {
	_, storeID, raw := fencesFile(f)
	var id [16]byte
	if _, err := hex.Decode(id[:], []byte(storeID)); err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add(raw[:len(raw)-1])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		valid, err := decodeFences(b, id, map[uint64]uint32{})
		if err == nil && (valid < fencesHeaderBytes || valid > len(b)) {
			t.Fatalf("%d of %d bytes are said to be whole", valid, len(b))
		}
	})
}

func FuzzParseIdentity(f *testing.F) {
	f.Add([]byte(`{"magic":"sluice stripe store","format":1,"engine":"filestore",` +
		`"store_id":"00112233445566778899aabbccddeeff","server_id":7}`))
	f.Add([]byte(`{"magic":"sluice stripe store","format":9}`))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if ident, err := parseIdentity(b); err == nil && ident.Format != formatVersion {
			t.Fatalf("format %d was accepted", ident.Format)
		}
	})
}
