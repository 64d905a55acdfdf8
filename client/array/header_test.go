package array

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sluice-storage/sluice/errs"
)

// raw is a header of version 1.0 with the given text.
func rawHeader(text string) []byte {
	p := append([]byte(magic), 1, 0, byte(len(text)), byte(len(text)>>8))
	return append(p, text...)
}

func TestHeadersOfOthers(t *testing.T) {
	for _, text := range []string{
		"{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }\n",
		`{"shape":(3L,4L,),"descr":"<f8","fortran_order":False}`,
		"\n {'fortran_order' : False , 'descr' : \"<f8\", 'shape' : (3 , 4) }   ",
	} {
		h, data, err := ParseHeader(rawHeader(text))
		want := Header{Type: Type{Kind: 'f', Order: '<', Bytes: 8}, Shape: []int64{3, 4}, Version: 1}
		if err != nil || data != int64(10+len(text)) || !cmp.Equal(h, want) {
			t.Errorf("%q: %+v, %d, %v", text, h, data, err)
		}
	}
}

func TestHeadersThatAreRefused(t *testing.T) {
	good := "'fortran_order': False, 'shape': (3,)"
	for _, text := range []string{
		"", "{}", "{'descr': '<f8'}", "[]", "{'descr': '<f8', " + good,
		"{'descr': '<f8', " + good + "} x",
		"{'descr': '|O', " + good + "}",
		"{'descr': '<f3', " + good + "}",
		"{'descr': '<x8', " + good + "}",
		"{'descr': '<f99999999999', " + good + "}",
		"{'descr': [('a', '|V2000000000'), ('b', '|V2000000000')], " + good + "}",
		"{'descr': [('a', '<f8', (-1,))], " + good + "}",
		"{'descr': [('a',)], " + good + "}",
		"{'descr': '<f8', 'fortran_order': 1, 'shape': (3,)}",
		"{'descr': '<f8', 'fortran_order': False, 'shape': (3, -1)}",
		"{'descr': '<f8', 'fortran_order': False, 'shape': 3}",
		"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999,)}",
		"{'descr': '<f8', 'fortran_order': False, 'shape': (4000000000, 4000000000, 4000000000)}",
		"{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775807, 0)}",
		"{'descr': '<f8', 'descr': '<f8', 'shape': (3,)}",
		"{'descr': '<f8', 'more': 1, 'shape': (3,)}",
		"{'descr': " + strings.Repeat("[", 100) + ", " + good + "}",
		"{'descr': 'a\\q', " + good + "}",
	} {
		_, _, err := ParseHeader(rawHeader(text))
		if k := errs.KindOf(err); k != errs.Invalid && k != errs.TooBig {
			t.Errorf("%q: %v", text, err)
		}
	}
	for name, p := range map[string][]byte{
		"nothing": nil, "another file": []byte("PK\x03\x04 this is a zip file"),
		"version 4":   append([]byte(magic), 4, 0, 0, 0, 0, 0),
		"too long":    append([]byte(magic), 2, 0, 255, 255, 255, 255),
		"cut off":     rawHeader("{'descr': '<f8', " + good + "}")[:30],
		"not UTF-8":   append([]byte(magic), 3, 0, 1, 0, 0, 0, 0xff),
		"half a head": []byte(magic),
	} {
		if _, _, err := ParseHeader(p); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestVersionsAreChosen(t *testing.T) {
	long := Type{Order: '|'}
	for range 3000 {
		f := Field{Name: strings.Repeat("n", 20), Type: Type{Kind: 'f', Order: '<', Bytes: 8}}
		long.Fields = append(long.Fields, f)
		long.Bytes += 8
	}
	wide := Type{Order: '|', Bytes: 1, Fields: []Field{
		{Name: "Größe", Type: Type{Kind: 'u', Order: '|', Bytes: 1}}}}
	wider := Type{Order: '|', Bytes: 1, Fields: []Field{
		{Name: "大きさ", Type: Type{Kind: 'u', Order: '|', Bytes: 1}}}}
	for _, c := range []struct {
		name    string
		h       Header
		version int // 0: refused
	}{
		{"short", Header{Type: Type{Kind: 'f', Order: '<', Bytes: 8}}, 1},
		{"long", Header{Type: long}, 2},
		{"Latin-1", Header{Type: wide}, 1},
		{"other letters", Header{Type: wider}, 3},
		{"chosen", Header{Type: wide, Version: 3}, 3},
		{"cannot hold it", Header{Type: wider, Version: 2}, 0},
		{"too long for it", Header{Type: long, Version: 1}, 0},
		{"unknown", Header{Type: wide, Version: 4}, 0},
	} {
		p, err := c.h.Append(nil)
		if c.version == 0 {
			if errs.KindOf(err) != errs.Invalid {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		h, data, perr := ParseHeader(p)
		if err != nil || perr != nil || h.Version != c.version || data != int64(len(p)) || data%64 != 0 {
			t.Errorf("%s: version %d, data at %d, %v, %v", c.name, h.Version, data, err, perr)
		}
		if h.Type.String() != c.h.Type.String() {
			t.Errorf("%s: %v became %v", c.name, c.h.Type, h.Type)
		}
	}
}

func FuzzHeader(f *testing.F) {
	f.Add(rawHeader("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }\n"))
	f.Add(rawHeader("{'descr': [('a', '<M8[ns]'), (('t', 'b'), [('c', '|S3', (2, 3))])], " +
		"'fortran_order': True, 'shape': ()}"))
	f.Add(append([]byte(magic), 3, 0, 2, 0, 0, 0, '{', '}'))
	f.Fuzz(func(t *testing.T, p []byte) {
		h, data, err := ParseHeader(p)
		if err != nil {
			if k := errs.KindOf(err); k != errs.Invalid && k != errs.TooBig {
				t.Fatalf("refused without a kind: %v", err)
			}
			return
		}
		if data > int64(len(p)) {
			t.Fatalf("data at %d of %d bytes", data, len(p))
		}
		n, err := h.Bytes()
		if err != nil || n < 0 {
			t.Fatalf("%+v has %d bytes, %v", h, n, err)
		}
		// What was understood can be written, and is understood again.
		h.Version = 0
		out, err := h.Append(nil)
		if err != nil {
			t.Fatalf("%+v: %v", h, err)
		}
		again, data, err := ParseHeader(out)
		again.Version = 0
		if err != nil || data != int64(len(out)) || !cmp.Equal(h, again) {
			t.Fatalf("%+v became %+v, %v", h, again, err)
		}
	})
}

func FuzzSlices(f *testing.F) {
	f.Add("0:10,::2,3")
	f.Add("...,-1")
	f.Add("::-1,5:-9223372036854775808:9223372036854775807")
	a, err := Raw(nil, 0, Header{Type: Type{Kind: 'u', Order: '|', Bytes: 1},
		Shape: []int64{7, 1, 100}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := ParseSlices(text)
		if err != nil {
			return
		}
		v, err := a.All().Slice(all...)
		if err != nil {
			return
		}
		low, high := v.off, v.off
		for i, n := range v.shape {
			if n == 0 {
				return
			}
			end := (n - 1) * v.strides[i]
			low, high = low+min(end, 0), high+max(end, 0)
		}
		if low < 0 || high >= a.bytes {
			t.Fatalf("%q is %+v, outside of the array", text, v)
		}
	})
}

func TestText(t *testing.T) {
	for _, c := range []struct{ kind, want string }{
		{"|b1", "True"}, {"<i2", "513"}, {">i2", "258"}, {"|u1", "1"}, {"<u4", "67305985"},
		{"<f4", "1.5399896e-36"}, {">f8", "8.20788039913184e-304"},
		{"|S4", `b'\x01\x02\x03\x04'`}, {"|V3", "010203"}, {"<m8[s]", "578437695752307201"},
		{"[('a', '|u1'), ('', '|V1'), ('b', '>i2', (2,))]", "(1, [772, 1286])"},
	} {
		kind, err := ParseType(c.kind)
		if err != nil {
			t.Fatal(err)
		}
		got := kind.Text([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9}[:kind.Bytes])
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.kind, got, c.want)
		}
	}
	kind, err := ParseType("<U2")
	if err != nil {
		t.Fatal(err)
	}
	if got := kind.Text([]byte{'h', 0, 0, 0, 0, 0, 0, 0}); got != "'h'" {
		t.Errorf("characters: %s", got)
	}
	if !bytes.Equal([]byte(half(0x3c00)), []byte("1")) || half(0xc000) != "-2" ||
		half(0x7c00) != "inf" || half(0x0001) != "5.9604645e-08" {
		t.Errorf("half precision: %s %s %s %s", half(0x3c00), half(0xc000), half(0x7c00), half(1))
	}
}
