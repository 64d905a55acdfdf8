package metatest

import (
	"bytes"
	"fmt"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/dump"
)

func upkeepCases() []testCase {
	return []testCase{{"Check", testCheck}, {"Dump", testDump}}
}

// some makes a bit of everything.
func (e *env) some() {
	e.Helper()
	e.mktree(meta.RootIno, "t", 2, 3)
	h, err := e.Service.Create(e.ctx, e.root(), meta.RootIno, "open", meta.NewFile{}, meta.OpenWrite)
	e.must(err)
	e.must(e.remove(meta.RootIno, "open"))
	e.must(e.Service.SetXattr(e.ctx, e.root(), h.Attr.Ino, "user.x", []byte("y"), false, false))
	_, err = e.Service.CreateVolume(e.ctx, e.root(), "vol", 1<<20, meta.NewFile{})
	e.must(err)
}

// testCheck: nothing is found in a healthy store, by whoever may look; steps are counted.
func testCheck(e *env) {
	e.some()
	step := func(c meta.Caller, run, n uint64) (meta.CheckPage, error) {
		return e.Service.Check(e.ctx, c, meta.CheckStep{Run: run, Step: n, Max: 5, Repair: true})
	}
	_, err := step(e.user(alice), 1, 0)
	e.want(errs.Perm, err, "a check by somebody")
	_, err = step(e.root(), 1, 3)
	e.want(errs.Stale, err, "a step of a run that is not known")
	_, err = step(e.root(), 0, 0)
	e.want(errs.Invalid, err, "a run without a number")
	var looked uint64
	for n := uint64(0); ; n++ {
		p, err := step(e.root(), 1, n)
		e.must(err)
		if len(p.Findings) > 0 || p.Looked < looked || p.At > p.Stages {
			e.Fatalf("step %d: %+v", n, p)
		}
		looked = p.Looked
		if p.End {
			break
		}
		_, err = step(e.root(), 2, 0)
		e.want(errs.Busy, err, "a second run")
	}
	if looked < 20 {
		e.Fatalf("only %d records were looked at", looked)
	}
	_, err = step(e.root(), 2, 0)
	e.must(err)
	e.Restart(e)
	_, err = step(e.root(), 2, 1)
	e.want(errs.Stale, err, "a run that the service has forgotten")
}

// testDump: all pages of a view are of one moment, whatever happens meanwhile.
func testDump(e *env) {
	e.some()
	for i := range 12 { // enough for several pages
		ino := e.mkfile(meta.RootIno, fmt.Sprint("f", i))
		value := make([]byte, meta.XattrValue)
		e.must(e.Service.SetXattr(e.ctx, e.root(), ino, "user.x", value, false, false))
	}
	made := 0
	read := func(view uint64) (all [][]byte) {
		e.Helper()
		var after []byte
		for pages := 0; ; pages++ {
			p, err := e.Service.Dump(e.ctx, e.root(), view, after)
			e.must(err)
			count, last, err := dump.Each(p.Records, after, func(dump.Record) error { return nil })
			e.must(err)
			if uint64(count) != p.Count || !bytes.Equal(last, p.Last) || p.Version == 0 {
				e.Fatalf("a page of %d records says %d", count, p.Count)
			}
			all, after = append(all, p.Records), p.Last
			if p.End {
				if pages < 1 {
					e.Fatal("one page: nothing could change in between")
				}
				return all
			}
			made++
			e.mkfile(meta.RootIno, fmt.Sprint("later", made))
		}
	}
	first, second := read(7), read(7)
	if !bytes.Equal(bytes.Join(first, nil), bytes.Join(second, nil)) {
		e.Fatal("a view has changed")
	}
	if bytes.Equal(bytes.Join(first, nil), bytes.Join(read(8), nil)) {
		e.Fatal("a later view shows nothing new")
	}
	_, err := e.Service.Dump(e.ctx, e.user(alice), 9, nil)
	e.want(errs.Perm, err, "a dump by somebody")
	_, err = e.Service.Dump(e.ctx, e.root(), 9, []byte("x"))
	e.want(errs.Stale, err, "a view that is not known")
}
