package server

import (
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
)

// TestToldNamesStayInside: a client that may see /proj holds directories alone that it has made
// there, and what it says to have done elsewhere is not done.
func TestToldNamesStayInside(t *testing.T) {
	r := newRights(t, identity.Rights{Path: "/proj", Squash: identity.SquashNone})
	heard, err := r.ask(ana, meta.OpListen, meta.Args{Listen: meta.Listening{Session: r.session}})
	r.must(err)
	me := meta.Caller{Session: r.session, Leases: true}
	got, err := r.ask(ana, meta.OpMake, meta.Args{Caller: me, Dir: meta.RootIno, Name: "own",
		File: meta.NewFile{Type: meta.Directory, Mode: 0o755, Checked: true, Sole: true}})
	r.must(err)
	own := got.Attr
	if own.Lease != meta.LeaseSole {
		t.Fatalf("the directory that it has made is lent by %v", own.Lease)
	}
	numbers, err := r.ask(ana, meta.OpNumbers, meta.Args{Caller: me, Max: 10})
	r.must(err)
	tell := func(dirs ...meta.Ino) (meta.Result, error) {
		a := meta.Args{Caller: me, Version: heard.Heard.Epoch}
		a.Caller.ReqID[0] = byte(numbers.First)
		for i, dir := range dirs {
			a.Deferred = append(a.Deferred, meta.Deferred{Kind: meta.DeferMake, Dir: dir,
				Name: "told" + string(rune('0'+i)), Ino: meta.Ino(numbers.First), At: meta.Now(),
				File: meta.NewFile{Type: meta.Regular, Mode: 0o644}})
			numbers.First++
		}
		return r.ask(ana, meta.OpTellMany, a)
	}
	if out, err := tell(own.Ino, own.Ino); err != nil || out.Settled[0].Kind != errs.OK ||
		out.Settled[1].Kind != errs.OK {
		t.Fatalf("in its own directory: %v %v", out.Settled, err)
	}
	before := r.records()
	for _, dirs := range [][]meta.Ino{{r.outDir}, {r.other, r.other}, {own.Ino, r.outDir},
		{r.inDir}, {meta.RootIno, meta.RootIno}, {own.Ino, meta.RootIno, meta.RootIno}} {
		if _, err := tell(dirs...); errs.KindOf(err) != errs.Fenced {
			t.Errorf("in %v: %v, want %v", dirs, err, errs.Fenced)
		}
	}
	if r.records() != before {
		t.Error("something was done in directories that it does not hold")
	}
}
