package client

import (
	"testing"

	"github.com/sluice-storage/sluice/meta"
)

// TestPastAnswers: answers that are older than what was told of a file that is closed are
// corrected, newer ones are left alone.
func TestPastAnswers(t *testing.T) {
	var p past
	at := func(sec int64) meta.Time { return meta.Time{Sec: sec} }
	p.put(&meta.Attr{Ino: 7, Gen: 1, Size: 100, TruncSeq: 2, DataVersion: 5, Mtime: at(50),
		Ctime: at(50)})
	for name, c := range map[string]struct{ answer, want meta.Attr }{
		"older version": {
			meta.Attr{Ino: 7, Gen: 1, TruncSeq: 2, DataVersion: 4, Mtime: at(40), Ctime: at(40)},
			meta.Attr{Ino: 7, Gen: 1, Size: 100, TruncSeq: 2, DataVersion: 5, Mtime: at(50), Ctime: at(50)}},
		"before the truncation": {
			meta.Attr{Ino: 7, Gen: 1, Size: 900, TruncSeq: 1, DataVersion: 4, Mtime: at(40)},
			meta.Attr{Ino: 7, Gen: 1, Size: 100, TruncSeq: 2, DataVersion: 5, Mtime: at(50), Ctime: at(50)}},
		"times were set since": {
			meta.Attr{Ino: 7, Gen: 1, Size: 100, TruncSeq: 2, DataVersion: 5, Mtime: at(3), Ctime: at(60)},
			meta.Attr{Ino: 7, Gen: 1, Size: 100, TruncSeq: 2, DataVersion: 5, Mtime: at(3), Ctime: at(60)}},
		"changed since": {
			meta.Attr{Ino: 7, Gen: 1, Size: 1, TruncSeq: 3, DataVersion: 6, Mtime: at(60)},
			meta.Attr{Ino: 7, Gen: 1, Size: 1, TruncSeq: 3, DataVersion: 6, Mtime: at(60)}},
		"another file": {meta.Attr{Ino: 8, Gen: 1}, meta.Attr{Ino: 8, Gen: 1}},
	} {
		got := c.answer
		p.correct(&got)
		if got.Size != c.want.Size || got.TruncSeq != c.want.TruncSeq || got.Mtime != c.want.Mtime ||
			got.DataVersion != c.want.DataVersion || got.Ctime != c.want.Ctime {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestPastIsBounded: many files do not make it grow for ever.
func TestPastIsBounded(t *testing.T) {
	var p past
	for i := range 4 * pastMax {
		p.put(&meta.Attr{Ino: meta.Ino(i + 1)})
	}
	if n := len(p.young) + len(p.old); n > 2*pastMax {
		t.Fatalf("%d files are remembered", n)
	}
}
