package metatest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// scanCases are the tests of meta.Scans.
func scanCases() []testCase {
	return []testCase{
		{"ScanPages", testScanPages},
		{"ScanRefusals", testScanRefusals},
		{"ScanData", testScanData},
		{"ScanLeases", testScanLeases},
		{"ScanWaitsForNobody", testScanWaitsForNobody},
		{"ScanRights", testScanRights},
		{"FoundCookie", testFoundCookie},
		{"ScanAlso", testScanAlso},
	}
}

// scan reads a directory to its end, in pages.
func (l *listener) scan(dir meta.Ino, w meta.Scan) (all []meta.Entry, pages int) {
	l.Helper()
	for {
		s, err := l.Service.Scan(l.ctx, l.c, dir, w)
		l.must(err)
		if len(s.Entries) == 0 && !s.End || len(s.Entries) > w.Max || s.Dir.Ino != dir {
			l.Fatalf("%+v: %d entries, end %v, of %d", w, len(s.Entries), s.End, s.Dir.Ino)
		}
		all, pages = append(all, s.Entries...), pages+1
		if s.End {
			return all, pages
		}
		last := s.Entries[len(s.Entries)-1]
		w.Cookie, w.Name = last.Cookie, meta.NextName(last.Name)
	}
}

func testScanPages(e *env) {
	l := e.listen()
	dir := e.mkdir(meta.RootIno, "d")
	empty := e.mkdir(meta.RootIno, "empty")
	if all, _ := l.scan(empty, meta.Scan{Max: 10, Attrs: true}); len(all) != 0 {
		e.Fatalf("an empty directory has %d entries", len(all))
	}
	for i := range 300 {
		e.mustMake(dir, fmt.Sprint("f", i), meta.NewFile{Type: meta.Fifo})
	}
	want := e.list(dir, 1<<30)
	for _, w := range []meta.Scan{{Max: 7}, {Max: 7, Attrs: true}, {Max: 300, Attrs: true},
		{Max: 7, ByName: true}, {Max: 1000, Attrs: true, ByName: true}} {
		got, pages := l.scan(dir, w)
		if need := (300 + w.Max - 1) / w.Max; pages != need {
			e.Errorf("%+v: %d pages, want %d", w, pages, need)
		}
		order := slices.Clone(want)
		if w.ByName {
			slices.SortFunc(order, func(a, b meta.Entry) int { return strings.Compare(a.Name, b.Name) })
		}
		for i := range order {
			x, y := &order[i], &got[i]
			if x.Name != y.Name || x.Ino != y.Ino || x.Type != y.Type || x.Cookie != y.Cookie ||
				(y.Attr != nil) != w.Attrs || y.Data != nil {
				e.Fatalf("%+v: entry %d is %+v, want %+v", w, i, y, x)
			}
		}
	}
	for from, first := range map[string]string{"f3": "f3", "f29_": "f3", meta.NextName("f3"): "f30"} {
		s, err := e.Service.Scan(e.ctx, l.c, dir, meta.Scan{Name: from, ByName: true, Max: 1})
		if e.must(err); len(s.Entries) != 1 || s.Entries[0].Name != first {
			e.Errorf("from %q on: %+v", from, s.Entries)
		}
	}
}

func testScanRefusals(e *env) {
	l := e.listen()
	dir, file := e.mkdir(meta.RootIno, "d"), e.mkfile(meta.RootIno, "f")
	long := meta.Scan{Max: 1, ByName: true, Name: strings.Repeat("x", 257)}
	for what, one := range map[string]struct {
		dir  meta.Ino
		w    meta.Scan
		want errs.Kind
	}{
		"of a file":     {file, meta.Scan{Max: 1}, errs.NotDir},
		"of nothing":    {1 << 40, meta.Scan{Max: 1}, errs.NotFound},
		"no entries":    {dir, meta.Scan{}, errs.Invalid},
		"fewer":         {dir, meta.Scan{Max: -1}, errs.Invalid},
		"less data":     {dir, meta.Scan{Max: 1, Bytes: -1}, errs.Invalid},
		"too long":      {dir, long, errs.NameTooLong},
		"any page size": {dir, meta.Scan{Max: 1 << 30, Bytes: 1 << 30, Attrs: true}, errs.OK},
	} {
		_, err := e.Service.Scan(e.ctx, l.c, one.dir, one.w)
		e.want(one.want, err, what)
	}
}

// smalls makes small files of so many bytes each.
func (l *listener) smalls(dir meta.Ino, sizes ...int) map[string][]byte {
	l.Helper()
	all := map[string][]byte{}
	for i, n := range sizes {
		name := fmt.Sprint("f", i)
		h, err := l.Service.Create(l.ctx, l.c, dir, name, meta.NewFile{Mode: 0o640},
			meta.OpenWrite|meta.OpenExclusive)
		l.must(err)
		if h.Attr.Lease != meta.LeaseWrite {
			l.Fatalf("no lease to write: %+v", h.Attr)
		}
		all[name] = bytes.Repeat([]byte{byte(i + 1)}, n)
		l.must(l.Service.Close(l.ctx, l.c, meta.Closing{Handle: h.ID, Dirty: true,
			Change: meta.Change{Ino: h.Attr.Ino, Size: int64(n), Epoch: l.epoch, Whole: true,
				Data: all[name], Mtime: meta.Now()}}))
	}
	return all
}

func testScanData(e *env) {
	writer, l := e.listen(), e.listen()
	dir := e.mkdir(meta.RootIno, "d")
	want := writer.smalls(dir, 10, 0, 5000, 16384, 3, 2000)
	for _, w := range []meta.Scan{
		{Max: 100, Attrs: true, Bytes: 1 << 20}, {Max: 100, Attrs: true, Bytes: 16384},
		{Max: 2, Attrs: true, Bytes: 1 << 20, ByName: true},
	} {
		all, pages := l.scan(dir, w)
		for _, x := range all {
			if x.Attr == nil || x.Data == nil || !bytes.Equal(x.Data, want[x.Name]) {
				e.Errorf("%+v: %s has %d bytes, want %d", w, x.Name, len(x.Data), len(want[x.Name]))
			}
		}
		if len(all) != len(want) || w.Bytes == 16384 && pages != 3 {
			e.Errorf("%+v: %d entries in %d pages", w, len(all), pages)
		}
	}
	// What does not fit any page is left out, and the rest is there.
	all, _ := l.scan(dir, meta.Scan{Max: 100, Attrs: true, Bytes: 4000})
	for _, x := range all {
		if (len(want[x.Name]) <= 4000) != (x.Data != nil) {
			e.Errorf("%s of %d bytes: %d", x.Name, len(want[x.Name]), len(x.Data))
		}
	}
	if len(all) != len(want) {
		e.Errorf("%d entries", len(all))
	}
	// Nobody has asked for it.
	all, _ = l.scan(dir, meta.Scan{Max: 100, Attrs: true})
	given := func(x meta.Entry) bool { return x.Data != nil }
	if len(all) != len(want) || slices.ContainsFunc(all, given) {
		e.Errorf("%+v", all)
	}
}

// testScanLeases: what a scan tells is lent, the directory too, and is recalled like anything else.
func testScanLeases(e *env) {
	writer, l := e.listen(), e.listen()
	dir := e.mkdir(meta.RootIno, "d")
	writer.smalls(dir, 100)
	e.must(e.Service.EndSession(e.ctx, writer.c.Session))
	page, err := e.Service.Scan(e.ctx, l.c, dir, meta.Scan{Max: 9, Attrs: true, Bytes: 1 << 20})
	e.must(err)
	if page.Dir.Lease != meta.LeaseRead || page.Entries[0].Attr.Lease != meta.LeaseRead ||
		page.Entries[0].Attr.Serial == 0 {
		e.Fatalf("leases %+v, %+v", page.Dir, page.Entries[0].Attr)
	}
	file := page.Entries[0].Ino
	for ino, change := range map[meta.Ino]func() error{
		file: func() error {
			_, err := e.Service.SetAttr(e.ctx, e.root(), file, meta.SetSize, meta.Attr{Size: 3})
			return err
		},
		dir: func() error {
			_, err := e.Service.Make(e.ctx, e.root(), dir, "new", meta.NewFile{Type: meta.Fifo})
			return err
		},
	} {
		over, done := e.background(change)
		r := l.recalled(ino)
		if done() {
			e.Error("the change did not wait for the lease")
		}
		l.hear(0, r)
		e.must(over())
	}
	// Who does not listen gets attributes, and nothing to rely on.
	page, err = e.Service.Scan(e.ctx, e.root(), dir, meta.Scan{Max: 9, Attrs: true, Bytes: 1 << 20})
	e.must(err)
	for _, x := range page.Entries {
		if x.Attr == nil || x.Attr.Lease != meta.LeaseNone || x.Data != nil {
			e.Errorf("without leases: %+v", x)
		}
	}
}

// testScanWaitsForNobody: a file that somebody writes is listed without attributes, and its writer
// keeps what it has.
func testScanWaitsForNobody(e *env) {
	writer, l := e.listen(), e.listen()
	dir := e.mkdir(meta.RootIno, "d")
	h, err := e.Service.Create(e.ctx, writer.c, dir, "written", meta.NewFile{Mode: 0o644},
		meta.OpenWrite)
	e.must(err)
	e.mkfile(dir, "quiet")
	page, err := e.Service.Scan(e.ctx, l.c, dir, meta.Scan{Max: 9, Attrs: true, Bytes: 1 << 20})
	e.must(err)
	if len(page.Entries) != 2 || !page.End || page.Entries[0].Attr != nil ||
		page.Entries[0].Data != nil || page.Entries[1].Attr == nil {
		e.Errorf("%+v", page)
	}
	if heard := writer.hear(0); len(heard.Recalls) != 0 {
		e.Errorf("recalled: %+v", heard.Recalls)
	}
	e.must(e.Service.Close(e.ctx, writer.c, meta.Closing{Handle: h.ID, Dirty: true,
		Change: meta.Change{Ino: h.Attr.Ino, Size: 3, Epoch: writer.epoch, Whole: true,
			Data: []byte("abc"), Mtime: meta.Now()}}))
	page, err = e.Service.Scan(e.ctx, l.c, dir, meta.Scan{Max: 9, Attrs: true, Bytes: 1 << 20})
	if e.must(err); page.Entries[0].Attr == nil || string(page.Entries[0].Data) != "abc" {
		e.Errorf("after the closing: %+v", page.Entries[0])
	}
}

// testScanRights: who may list a directory sees attributes; data only who may read the file through
// it.
func testScanRights(e *env) {
	writer, l := e.listen(), e.listen()
	dir := e.mkdir(meta.RootIno, "d")
	writer.smalls(dir, 100)
	e.must(e.Service.EndSession(e.ctx, writer.c.Session))
	for _, one := range []struct {
		mode       uint32
		cred       meta.Cred
		err        errs.Kind
		attr, data bool
	}{
		{0o755, meta.Cred{}, errs.OK, true, true},
		{0o755, meta.Cred{UID: 7, GID: 7}, errs.OK, true, false},
		{0o754, meta.Cred{UID: 7, GID: 7}, errs.OK, true, false},
		{0o751, meta.Cred{UID: 7, GID: 7}, errs.Access, false, false},
		{0o745, meta.Cred{UID: 7, GID: 0}, errs.OK, true, false},
		{0o755, meta.Cred{UID: 7, GID: 0}, errs.OK, true, true},
	} {
		_, err := e.Service.SetAttr(e.ctx, l.c, dir, meta.SetMode, meta.Attr{Mode: one.mode})
		e.must(err)
		c := l.c
		c.Cred = one.cred
		page, err := e.Service.Scan(e.ctx, c, dir, meta.Scan{Max: 9, Attrs: true, Bytes: 1 << 20})
		if errs.KindOf(err) != one.err {
			e.Errorf("%+v: %v", one, err)
			continue
		}
		if err == nil && ((page.Entries[0].Attr != nil) != one.attr ||
			(page.Entries[0].Data != nil) != one.data) {
			e.Errorf("%+v: %+v", one, page.Entries[0])
		}
	}
}

// testFoundCookie: Find tells where a name stands in its directory.
func testFoundCookie(e *env) {
	l := e.listen()
	dir := e.mkdir(meta.RootIno, "d")
	e.mkfile(dir, "a")
	e.mkfile(dir, "b")
	for _, x := range e.list(dir, 10) {
		if f := l.find(dir, x.Name); f.Cookie != x.Cookie {
			e.Errorf("%s: cookie %d, want %d", x.Name, f.Cookie, x.Cookie)
		}
	}
	if f := l.find(dir, "."); f.Cookie != 0 || !f.Present {
		e.Errorf("a cookie of a dot: %d", f.Cookie)
	}
}

// testScanAlso: pages of other directories come with one, in order, with leases; not of those that
// the caller may not read, that somebody else holds alone, or that are none.
func testScanAlso(e *env) {
	l := e.listen()
	l.c.Cred = meta.Cred{UID: alice, GID: staff}
	top := e.mkdir(meta.RootIno, "top")
	var dirs []meta.Ino
	for i := range 4 {
		dir := e.mkdir(top, fmt.Sprint("d", i))
		for j := range 3 {
			e.mustMake(dir, fmt.Sprint("f", j), meta.NewFile{Type: meta.Regular, Mode: 0o644})
		}
		dirs = append(dirs, dir)
	}
	closed := e.mustMake(top, "closed", meta.NewFile{Type: meta.Directory, Mode: 0o700}).Ino
	holder := e.teller("held")
	file := e.mustMake(top, "file", meta.NewFile{Type: meta.Regular, Mode: 0o644}).Ino
	also := []meta.Ino{dirs[2], closed, holder.dir.Ino, file, 1 << 40, dirs[1]}
	s, err := e.Service.Scan(e.ctx, l.c, dirs[0], meta.Scan{Max: 100, Attrs: true, Also: also})
	if e.must(err); s.Dir.Ino != dirs[0] || len(s.Entries) != 3 || len(s.Also) != 2 {
		e.Fatalf("%+v", s)
	}
	for i, want := range []meta.Ino{dirs[2], dirs[1]} {
		p := s.Also[i]
		if p.Dir.Ino != want || !p.End || len(p.Entries) != 3 || p.Dir.Lease != meta.LeaseRead {
			e.Errorf("%d: %+v", want, p)
		}
		for _, n := range p.Entries {
			if n.Attr == nil || n.Attr.Lease == meta.LeaseNone {
				e.Errorf("%s: %+v", n.Name, n.Attr)
			}
		}
	}
	over, _ := e.background(func() error { return e.remove(dirs[2], "f1") })
	for done := false; !done; {
		for _, r := range l.hear(time.Millisecond).Recalls {
			done = done || r.Ino == dirs[2]
			l.hear(0, r)
		}
	}
	e.must(over())
	_, err = e.Service.Scan(e.ctx, l.c, dirs[0], meta.Scan{Max: 1,
		Also: make([]meta.Ino, meta.ScanAlso+1)})
	if k := errs.KindOf(err); k != errs.OK && k != errs.Invalid { // asked from afar: some are left out
		e.Errorf("too many: %v", err)
	}
}
