package tcp

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"os"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/errs"
)

// fileConn is a socket whose peer has said everything already: a file.
type fileConn struct{ *os.File }

func (f fileConn) Control(use func(uintptr)) error { use(f.Fd()); return nil }

func (f fileConn) Read(use func(uintptr) bool) error { use(f.Fd()); return nil }

func (f fileConn) Write(use func(uintptr) bool) error { use(f.Fd()); return nil }

// testMac is the key of both directions.
func testMac() mac {
	block, err := aes.NewCipher(make([]byte, 16))
	if err != nil {
		panic(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return mac{aead: aead}
}

func testRecords() *frameRecords {
	return &frameRecords{
		rxMac: testMac(), txMac: testMac(),
		stage: make([]byte, 0, sealSmall*(recordHead+recordSmall)),
	}
}

// streamOf reads data through records. The memory file goes with the test.
func streamOf(t fatalTest, data []byte, r records) (*stream, func()) {
	fd, err := unix.MemfdCreate("stream", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "stream")
	if _, err := f.WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
	s := &stream{
		sock: &sock{raw: fileConn{f}, rec: r}, before: func() {},
		bulk: new(atomic.Bool), block: true,
	}
	s.call = s.readOnce
	return s, func() { _ = f.Close() }
}

type fatalTest interface{ Fatal(args ...any) }

// seal makes records of pieces, as a batch would.
func seal(pieces [][]byte) []byte {
	r := testRecords()
	b := &batch{sock: &sock{rec: r}}
	b.wire = &vec{}
	for _, p := range pieces { // no more than a batch takes
		b.out.add(p)
	}
	var out []byte
	for b.out.bytes > 0 {
		if err := r.seal(b); err != nil {
			panic(err)
		}
		out = b.wire.copyOut(out, b.wire.bytes)
	}
	return out
}

// TestRecordsRoundTrip reads what was sealed in pieces of other sizes.
func TestRecordsRoundTrip(t *testing.T) {
	sizes := rapid.OneOf(rapid.IntRange(1, 100), rapid.IntRange(recordSmall-2, recordSmall+2),
		rapid.IntRange(recordMax-2, recordMax+2), rapid.IntRange(1, 3*recordMax))
	rapid.Check(t, func(t *rapid.T) {
		var want []byte
		var pieces [][]byte
		for i := range rapid.IntRange(1, 8).Draw(t, "pieces") {
			p := bytes.Repeat([]byte{byte(i + 1)}, sizes.Draw(t, "size"))
			p[0], p[len(p)-1] = 0xff, 0xfe
			pieces = append(pieces, p)
			want = append(want, p...)
		}
		s, done := streamOf(t, seal(pieces), testRecords())
		defer done()
		got := make([]byte, len(want))
		for at := 0; at < len(got); {
			n := min(sizes.Draw(t, "read"), len(got)-at)
			part := got[at : at+n]
			cut := rapid.IntRange(0, n).Draw(t, "cut")
			var err error
			if rapid.Bool().Draw(t, "skip") {
				err = s.skip(n)
				copy(part, want[at:])
			} else {
				err = s.place([][]byte{part[:cut], part[cut:]})
			}
			if err != nil {
				t.Fatalf("at %d of %d: %v", at, len(got), err)
			}
			at += n
		}
		if !bytes.Equal(got, want) {
			t.Fatal("what was read differs from what was sealed")
		}
	})
}

// TestRecordsNoticeEveryChange flips every bit of a short stream, and cuts, repeats and swaps its
// records.
func TestRecordsNoticeEveryChange(t *testing.T) {
	small, large := bytes.Repeat([]byte("s"), 40), bytes.Repeat([]byte("L"), recordSmall+1)
	good := seal([][]byte{small, large})
	first := recordHead + len(small)
	read := func(data []byte) error {
		s, done := streamOf(t, data, testRecords())
		defer done()
		return s.place([][]byte{make([]byte, len(small)), make([]byte, len(large))})
	}
	fatal(t, read(good))
	for at := range 8 * (first + recordHead + 8) { // all of the first, the head of the second
		bad := bytes.Clone(good)
		bad[at/8] ^= 1 << (at % 8)
		if read(bad) == nil {
			t.Fatalf("bit %d was flipped and nobody noticed", at)
		}
	}
	for name, bad := range map[string][]byte{
		"swapped":  append(bytes.Clone(good[first:]), good[:first]...),
		"repeated": append(bytes.Clone(good[:first]), good...),
		"cut":      good[first:],
	} {
		if err := read(bad); errs.KindOf(err) != errs.Protocol {
			t.Fatalf("records %s: %v", name, err)
		}
	}
}

// FuzzRecords reads anything: there is an error or what was sealed, and nothing else.
func FuzzRecords(f *testing.F) {
	hello := seal([][]byte{[]byte("hello"), bytes.Repeat([]byte("x"), recordSmall+1)})
	f.Add(hello)
	f.Add(hello[:len(hello)-1])
	f.Add([]byte{0, 0, 0, 0})
	f.Add(binary.BigEndian.AppendUint32(nil, recordMax+1))
	f.Add(append(binary.BigEndian.AppendUint32(nil, recordMax), make([]byte, 9000)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, done := streamOf(t, data, testRecords())
		defer done()
		for range 100 {
			if err := s.fill(true); err != nil {
				return
			}
			if !bytes.HasPrefix(data, hello[:recordHead+5]) {
				t.Fatalf("unverified bytes: %q", s.carry[s.at:s.to])
			}
			s.at = s.to
		}
	})
}
