package exio

import (
	"testing"

	"github.com/sluice-storage/sluice/fabric"
)

// FuzzMessages: no message of a peer is read beyond its end, or says more than fits.
func FuzzMessages(f *testing.F) {
	h := header{kind: kindRequest, tag: 3, length: 10}
	p := places{pieces: 2, list: []fabric.Remote{{Key: 1, Addr: 2, Len: 10}}}
	f.Add(p.append(h.append(nil), kindRequest))
	h.kind, p.slot = kindAccept, fabric.Remote{Key: 9, Len: 10}
	f.Add(p.append(h.append(nil), kindAccept))
	h.kind = kindRefuse
	f.Add(append(h.append(nil), 0, 4))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, rest, err := parseHeader(b)
		if err != nil {
			return
		}
		if again, _, err := parseHeader(h.append(nil)); err != nil || again != h {
			t.Fatalf("%+v, %+v, %v", h, again, err)
		}
		switch h.kind {
		case kindRequest, kindAccept:
			p, err := parsePlaces(rest, h.kind, h.length)
			if err != nil {
				return
			}
			var sum uint64
			for _, r := range p.list {
				sum += r.Len
			}
			if len(p.list) > MaxPieces || len(p.list) > 0 && sum != h.length {
				t.Fatalf("%+v of %d bytes", p, h.length)
			}
		case kindRefuse, kindFetched:
			if k, err := parseKind(rest); err == nil && !k.Valid() {
				t.Fatal(k)
			}
		}
	})
}
