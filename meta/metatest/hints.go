package metatest

import (
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/hint"
	"github.com/sluice-storage/sluice/meta"
)

const (
	policyName = hint.Prefix + "cache.policy"
	unitName   = hint.Prefix + "cache.unit"
)

// testHints: hints are extended attributes that come with a handle, and that new files and
// directories begin with.
func testHints(e *env) {
	s, ctx, c := e.Service, e.ctx, e.root()
	dir := e.mkdir(meta.RootIno, "d")
	old := e.mkfile(dir, "old")
	e.hintIs(old, policyName, "scan")
	e.want(errs.NoData, s.SetXattr(ctx, c, dir, policyName, []byte("keep"), false, true),
		"replace a hint that is not set")
	e.must(s.SetXattr(ctx, c, dir, policyName, []byte("keep"), true, false))
	e.want(errs.Exists, s.SetXattr(ctx, c, dir, policyName, []byte("lru"), true, false),
		"create a hint that is set")
	e.must(s.SetXattr(ctx, c, dir, unitName, []byte("16K"), false, false))

	below := e.mkdir(dir, "below")
	h, err := e.create(below, "new", meta.OpenRead|meta.OpenWrite)
	e.must(err)
	want := hint.Hints{Policy: hint.PolicyKeep, UnitBytes: 16 << 10}
	if h.Hints != want {
		e.Errorf("a new file has %+v, want %+v", h.Hints, want)
	}
	if got := e.open(old, meta.OpenRead).Hints; got != (hint.Hints{}) {
		e.Errorf("an old file has %+v", got)
	}
	names, err := s.ListXattr(ctx, c, h.Attr.Ino)
	if err != nil || !slices.Equal(names, []string{policyName, unitName}) {
		e.Errorf("a file with hints lists %q, %v", names, err)
	}

	before := e.attr(h.Attr.Ino).Ctime
	e.must(s.SetXattr(ctx, c, h.Attr.Ino, policyName, []byte("none"), false, true))
	e.must(s.RemoveXattr(ctx, c, h.Attr.Ino, unitName))
	e.want(errs.NoData, s.RemoveXattr(ctx, c, h.Attr.Ino, unitName), "remove a hint twice")
	if !e.attr(h.Attr.Ino).Ctime.After(before) {
		e.Error("ctime does not move")
	}
	e.hintIs(h.Attr.Ino, policyName, "none")
	e.hintIs(h.Attr.Ino, unitName, "default")
	if got := e.open(h.Attr.Ino, meta.OpenRead).Hints; got != (hint.Hints{Policy: hint.PolicyNone}) {
		e.Errorf("an open file has %+v", got)
	}
	e.hintsRefused(h.Attr.Ino)
}

// hintsRefused: what means nothing is not taken, nor is a hint of somebody who may not write.
func (e *env) hintsRefused(ino meta.Ino) {
	e.Helper()
	s, ctx, c := e.Service, e.ctx, e.root()
	for _, bad := range []struct{ name, value string }{
		{policyName, "lru2"}, {policyName, ""}, {unitName, "5000"}, {hint.Prefix + "other", "1"},
	} {
		err := s.SetXattr(ctx, c, ino, bad.name, []byte(bad.value), false, false)
		e.want(errs.Invalid, err, bad.name+" "+bad.value)
	}
	_, err := s.GetXattr(ctx, c, ino, hint.Prefix+"other")
	e.want(errs.NoData, err, "a hint that there is not")
	e.want(errs.NoData, s.RemoveXattr(ctx, c, ino, hint.Prefix+"other"), "a hint that there is not")
	mine := e.owned(meta.RootIno, "mine", meta.Regular, 0o644)
	e.want(errs.Access, s.SetXattr(ctx, e.user(bob), mine, policyName, []byte("keep"), false, false),
		"a hint by a stranger")
	e.must(s.SetXattr(ctx, e.user(alice), mine, policyName, []byte("keep"), false, false))
}

// hintIs checks what a hint is.
func (e *env) hintIs(ino meta.Ino, name, want string) {
	e.Helper()
	got, err := e.Service.GetXattr(e.ctx, e.root(), ino, name)
	if err != nil || string(got) != want {
		e.Errorf("%s is %q, %v, want %s", name, got, err, want)
	}
}
