package store

import (
	"testing"

	"github.com/sluice-storage/sluice/meta"
)

// TestClaimOfAnyVersion: who wrote a large file need not know which version its data has to get the
// lease back: it may have told of it without an answer. The data of a small file is replaced by
// what its writer has, so there the version counts.
func TestClaimOfAnyVersion(t *testing.T) {
	w := newLessor(t, Options{})
	a := w.session("a")
	plain := a
	plain.Leases = false
	small, large := w.create(a, "small"), w.create(plain, "large")
	if !small.Attr.Small || large.Attr.Small {
		t.Fatalf("%+v, %+v", small.Attr, large.Attr)
	}
	_, err := w.s.Commit(t.Context(), a, meta.Change{Ino: large.Attr.Ino, Size: 1 << 20}, false)
	w.must(err)
	w.restart()
	w.listen(a.Session)
	claim := func(h *meta.Handle, version uint64) meta.Claimed {
		return meta.Claimed{Handle: h.ID, Ino: h.Attr.Ino, Flags: meta.OpenWrite, Write: true,
			DataVersion: version}
	}
	for _, x := range []struct {
		claim meta.Claimed
		want  meta.LeaseMode
	}{
		{claim(&small, meta.AnyVersion), meta.LeaseNone},
		{claim(&small, small.Attr.DataVersion+1), meta.LeaseNone},
		{claim(&small, small.Attr.DataVersion), meta.LeaseWrite},
		{claim(&large, large.Attr.DataVersion), meta.LeaseNone},
		{claim(&large, meta.AnyVersion), meta.LeaseWrite},
	} {
		got, err := w.s.Claim(t.Context(), a.Session, w.s.life, []meta.Claimed{x.claim}, false)
		w.must(err)
		if got[0].Lease != x.want {
			t.Errorf("%+v: lease %d, want %d", x.claim, got[0].Lease, x.want)
		}
	}
}
