package hint

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/wire"
)

// TestValues sets and gets each value that there is, and refuses others.
func TestValues(t *testing.T) {
	for name, values := range map[string]struct{ good, bad string }{
		"cache.mode":     {"cached direct cached-writes", "Cached stream 1"},
		"cache.policy":   {"scan lru stream keep none", "lru2 LRU 0 default"},
		"cache.unit":     {"default 4K 8K 16K 32K 64K", "0 0K 2K 128K 5000 K 4k -4K 4294967295M"},
		"direct.streams": {"default plain single multiple", "many"},
		"direct.chunk":   {"default 4K 12K 128K 1M 2M", "1K 6K 3M 4G 4096B"},
	} {
		for _, value := range strings.Fields(values.good) {
			var h Hints
			err := h.Set(Prefix+name, value)
			if got, ok := h.Get(Prefix + name); err != nil || !ok || got != value || h.Validate() != nil {
				t.Errorf("%s %s: became %s, %v, %v", name, value, got, err, h.Validate())
			}
			if err := h.Unset(Prefix + name); err != nil || h != (Hints{}) {
				t.Errorf("%s %s: left %+v, %v", name, value, h, err)
			}
		}
		for _, value := range append(strings.Fields(values.bad), "", "x\x00") {
			h := Hints{Policy: PolicyKeep, UnitBytes: 8 << 10}
			before := h
			err := h.Set(Prefix+name, value)
			if errs.KindOf(err) != errs.Invalid || h != before {
				t.Errorf("%s %q: %v, %+v", name, value, err, h)
			}
		}
	}
	for _, name := range []string{"cache.policy", Prefix, Prefix + "cache", Prefix + "policy", ""} {
		var h Hints
		if _, ok := h.Get(name); ok || errs.KindOf(h.Set(name, "lru")) != errs.Invalid {
			t.Errorf("there is a hint %q", name)
		}
	}
	h := Hints{}
	if err := h.Set(Prefix+"cache.unit", "8192"); err != nil || h.UnitBytes != 8192 {
		t.Errorf("plain bytes: %v, %+v", err, h)
	}
}

func TestNamesFitTheirBytes(t *testing.T) {
	n := 0
	for _, name := range Names() {
		n += len(name) + 1
	}
	if n > NamesBytes {
		t.Errorf("names take %d bytes, NamesBytes is %d", n, NamesBytes)
	}
	if len(PolicyNames()) != int(Policies) {
		t.Errorf("%d policies have %d names", Policies, len(PolicyNames()))
	}
}

// TestEncoding: hints survive their record, and what is not valid does not come out of one.
func TestEncoding(t *testing.T) {
	for range 1000 {
		h := Hints{Mode: Mode(rand.N(4)), Policy: uint8(rand.N(6)), Streams: uint8(rand.N(5)),
			UnitBytes: 4096 << rand.N(6), ChunkBytes: 1024 * rand.N(2100)}
		var e wire.Enc
		h.Append(&e)
		if len(e.B) != Bytes {
			t.Fatalf("%d bytes", len(e.B))
		}
		d := wire.NewDec(e.B)
		got := Decode(&d)
		if valid := h.Validate() == nil; valid != (d.Done() == nil) || valid && got != h {
			t.Fatalf("%+v became %+v, %v", h, got, d.Done())
		}
	}
}
