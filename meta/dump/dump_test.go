package dump

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/wire"
)

// sample is a dump of some records in several blocks.
func sample(t testing.TB, rng *rand.Rand) ([]byte, map[string]string) {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, Header{Format: 2, Cluster: 3, Version: 4, Made: 5})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	n := 0
	for range 1 + rng.IntN(5) {
		var block []byte
		for range 1 + rng.IntN(20) {
			r := Record{Key: fmt.Appendf(nil, "key %06d", n), Value: make([]byte, rng.IntN(300))}
			n++
			for i := range r.Value {
				r.Value[i] = byte(rng.Uint32())
			}
			all[string(r.Key)] = string(r.Value)
			block = r.Append(block)
		}
		if err := w.Write(block); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), all
}

// readAll reads a dump to its end.
func readAll(b []byte) (Header, map[string]string, error) {
	r, err := NewReader(bytes.NewReader(b))
	if err != nil {
		return Header{}, nil, err
	}
	all := map[string]string{}
	for {
		err := r.Next(func(x Record) error {
			all[string(x.Key)] = string(x.Value)
			return nil
		})
		if errors.Is(err, io.EOF) {
			return r.Header, all, nil
		}
		if err != nil {
			return r.Header, all, err
		}
	}
}

func newRand(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

func TestDumpIsReadAsItWasWritten(t *testing.T) {
	b, want := sample(t, newRand(t))
	h, got, err := readAll(b)
	if err != nil || h != (Header{Format: 2, Cluster: 3, Version: 4, Made: 5}) {
		t.Fatalf("%v: %+v", err, h)
	}
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for k, v := range want {
		if got[k] != v {
			t.Fatalf("%q has another value", k)
		}
	}
}

// TestEveryDamageIsNoticed flips every bit, cuts at every byte, and appends.
func TestEveryDamageIsNoticed(t *testing.T) {
	b, _ := sample(t, newRand(t))
	refused := func(what string, b []byte) {
		t.Helper()
		_, _, err := readAll(b)
		if k := errs.KindOf(err); k != errs.Corrupt && k != errs.Version {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for i := range b {
		for bit := range 8 {
			b[i] ^= 1 << bit
			refused(fmt.Sprintf("bit %d of byte %d", bit, i), b)
			b[i] ^= 1 << bit
		}
		refused(fmt.Sprintf("cut to %d of %d bytes", i, len(b)), b[:i])
	}
	refused("a byte more", append(bytes.Clone(b), 0))
}

// TestBlocksCannotMove: each block is sound by itself; their order and number is not left to trust.
func TestBlocksCannotMove(t *testing.T) {
	block := func(key string) []byte {
		return (&Record{Key: []byte(key), Value: []byte{1}}).Append(nil)
	}
	write := func(keys ...string) []byte {
		var b bytes.Buffer
		w, err := NewWriter(&b, Header{})
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			if err := w.Write(block(k)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	b := write("a", "b", "c")
	size := blockBytes + len(block("a"))
	part := func(i int) []byte { return b[headerBytes+i*size : headerBytes+(i+1)*size] }
	end := b[headerBytes+3*size:]
	for name, order := range map[string][]int{
		"missing": {0, 2}, "doubled": {0, 1, 1, 2}, "swapped": {0, 2, 1}, "none": {},
		"first lost": {1, 2},
	} {
		x := bytes.Clone(b[:headerBytes])
		for _, i := range order {
			x = append(x, part(i)...)
		}
		if _, _, err := readAll(append(x, end...)); errs.KindOf(err) != errs.Corrupt {
			t.Errorf("%s: %v", name, err)
		}
	}
	other := write("a", "b", "d")
	at := headerBytes + 2*size
	x := append(append(bytes.Clone(b[:at]), other[at:at+size]...), end...)
	if _, _, err := readAll(x); errs.KindOf(err) != errs.Corrupt {
		t.Errorf("a block of another dump: %v", err)
	}
	w, err := NewWriter(io.Discard, Header{})
	if err == nil {
		err = w.Write(block("b"))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(block("a")); errs.KindOf(err) != errs.Corrupt {
		t.Errorf("keys that fall are written: %v", err)
	}
}

// FuzzReader: whatever is read comes to an end without a panic and without much memory; what is
// accepted encodes to the same bytes.
func FuzzReader(f *testing.F) {
	b, _ := sample(f, rand.New(rand.NewPCG(1, 1)))
	f.Add(b)
	f.Add(b[:headerBytes])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := NewReader(bytes.NewReader(b))
		if err != nil {
			return
		}
		var again bytes.Buffer
		w, err := NewWriter(&again, r.Header)
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			var block []byte
			err = r.Next(func(x Record) error {
				block = x.Append(block)
				return nil
			})
			if err == nil {
				err = w.Write(block)
			}
		}
		if !errors.Is(err, io.EOF) {
			return
		}
		if err := w.Close(); err != nil || !bytes.Equal(again.Bytes(), b) {
			t.Fatalf("%v: accepted %d bytes, which encode to %d", err, len(b), again.Len())
		}
	})
}

// FuzzRecords gives a block right sums, so that what is behind them is tried: whatever it holds, it
// is refused or read as it would be written.
func FuzzRecords(f *testing.F) {
	f.Add((&Record{Key: []byte("k"), Value: []byte("v")}).Append(nil), uint32(1))
	f.Add((&Record{Key: []byte("l")}).Append((&Record{Key: []byte("k")}).Append(nil)), uint32(2))
	f.Add([]byte{0, 1, 'k', 0xff, 0xff, 0xff, 0xff}, uint32(1))
	f.Fuzz(func(t *testing.T, records []byte, count uint32) {
		var b bytes.Buffer
		if _, err := NewWriter(&b, Header{}); err != nil {
			t.Fatal(err)
		}
		head := wire.Enc{B: []byte{kindBlock}}
		head.U32(uint32(len(records)))
		head.U32(count)
		crc := wire.Enc{}
		crc.U32(sum(head.B, records))
		end := wire.Enc{B: []byte{kindEnd}}
		end.U64(uint64(count))
		end.U32(sum(crc.B))
		end.U32(sum(end.B))
		dump := slices.Concat(b.Bytes(), head.B, crc.B, records, end.B)
		_, all, err := readAll(dump)
		switch {
		case err == nil && uint32(len(all)) != count:
			t.Fatalf("%d records, said to be %d", len(all), count)
		case err != nil && errs.KindOf(err) != errs.Corrupt:
			t.Fatal(err)
		}
		if err != nil {
			return
		}
		var again []byte
		for _, k := range slices.Sorted(maps.Keys(all)) {
			again = (&Record{Key: []byte(k), Value: []byte(all[k])}).Append(again)
		}
		if !bytes.Equal(again, records) {
			t.Fatalf("accepted %x, which encodes to %x", records, again)
		}
	})
}
