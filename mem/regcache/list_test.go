package regcache

import (
	"context"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/alloctest"
)

// rows are count pieces of length bytes, stride bytes apart: a part of an array.
func (r *rig) rows(count, length, stride int) []fabric.Sge {
	var list []fabric.Sge
	for i := range count {
		list = append(list, fabric.Sge{Buf: r.mem[i*stride : i*stride+length : i*stride+length]})
	}
	return list
}

func (r *rig) getList(t *testing.T, list []fabric.Sge) *List {
	t.Helper()
	l, err := r.GetList(context.Background(), list)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range list {
		if len(p.Buf) > 0 && (p.Reg == nil || !extentOf(p.Reg.Bytes()).covers(extentOf(p.Buf))) {
			t.Fatalf("piece %d has no region that covers it", i)
		}
	}
	return l
}

func TestListOfOneParent(t *testing.T) {
	r := newRig(t, Options{}, 2048*768) // the lineage's array, its first 1024 columns
	r.Hint(r.mem)
	l := r.getList(t, r.rows(768, 1024, 2048))
	r.wantMade(t, "768 rows of a hinted array", 1, 1)
	if l.Registrations() != 1 {
		t.Fatalf("%d registrations", l.Registrations())
	}
	l.Put()
	for range 5 {
		r.getList(t, r.rows(768, 1024, 2048)).Put()
	}
	r.wantMade(t, "six requests", 1, 1)
	r.close(t)

	r = newRig(t, Options{}, 2048*768)
	r.getList(t, r.rows(768, 1024, 2048)).Put()
	r.wantMade(t, "768 rows without a hint", 768, 768)
	r.close(t)
}

func TestGroups(t *testing.T) {
	all := 1024 * page
	for _, tc := range []struct {
		name                  string
		hint                  bool
		count, length, stride int
		want                  int
	}{
		{"gaps of 29 pages are cheaper than a registration", true, 8, page, 30 * page, 1},
		{"gaps of 30 pages are dearer", true, 8, page, 31 * page, 8},
		{"without a hint no gap is spanned", false, 10, page / 2, page, 10},
		{"pieces that touch but show no common array", false, 10, page, page, 10},
		{"a span is bounded", true, 64, page, 8 * page, 2},
	} {
		// The parent is larger than SpanBytes, so that groups are what is left.
		r := newRig(t, Options{Bytes: int64(all), SpanBytes: int64(all)/4 + page}, all)
		if tc.hint {
			r.Hint(r.mem)
		}
		l := r.getList(t, r.rows(tc.count, tc.length, tc.stride))
		if got := l.Registrations(); got != tc.want {
			t.Errorf("%s: %d registrations, want %d", tc.name, got, tc.want)
		}
		l.Put()
		r.close(t)
	}
}

func TestPiecesOfOneArrayThatTouch(t *testing.T) {
	r := newRig(t, Options{}, 64*page)
	list := []fabric.Sge{
		{Buf: r.mem[2*page : 3*page]}, {Buf: r.mem[0:page]}, {}, {Buf: r.mem[page : 2*page]},
		{Buf: r.mem[5*page : 6*page]},
	}
	l := r.getList(t, list)
	if l.Registrations() != 2 {
		t.Fatalf("%d registrations", l.Registrations())
	}
	if list[2].Reg != nil || list[0].Reg != list[1].Reg || list[0].Reg == list[4].Reg {
		t.Fatal("joined what is apart, or parted what touches")
	}
	l.Put()
	r.close(t)
}

func TestGroupThatCannotBeRegistered(t *testing.T) {
	r := newRig(t, Options{Bytes: 400 * page, SpanBytes: 32 * page}, 100*page)
	r.m.refuse = func(ext extent) error {
		if ext.pages() > 3 {
			return errs.New(errs.Invalid, "register", "", nil)
		}
		return nil
	}
	r.Hint(r.mem)
	l := r.getList(t, r.rows(10, page, 3*page))
	if s := r.Stats(); s.Retreats == 0 || l.Registrations() != 10 {
		t.Fatalf("%d registrations, %+v", l.Registrations(), s)
	}
	l.Put()
	r.close(t)
}

func TestListIsAllOrNone(t *testing.T) {
	r := newRig(t, Options{Bytes: 8 * page}, 64*page)
	own := r.get(t, r.at(60, 1))
	list := r.rows(10, page, 2*page)
	list = append(list, fabric.Sge{Reg: own.Region(), Buf: r.at(60, 1)}, fabric.Sge{Buf: r.at(60, 1)})
	_, err := r.GetList(context.Background(), list)
	wantKind(t, "more than the bound", err, errs.Again)
	for i, p := range list {
		if (p.Reg != nil) != (i == 10) {
			t.Fatalf("piece %d: region %v", i, p.Reg)
		}
	}
	if s := r.Stats(); s.InUse != 1 {
		t.Fatalf("%+v", s)
	}
	own.Put()
	r.close(t)
}

func TestListAllocatesNothingOnHits(t *testing.T) {
	if enabled() {
		return // the place of each Ref is remembered
	}
	r := newRig(t, Options{}, 64*page)
	r.Hint(r.mem)
	list, ctx := r.rows(16, page/2, page), context.Background()
	r.getList(t, list).Put()
	if n := alloctest.PerRun(0, 100, func() {
		for i := range list {
			list[i].Reg = nil
		}
		l, _ := r.GetList(ctx, list)
		l.Put()
		ref, _ := r.Get(ctx, list[0].Buf)
		ref.Put()
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
	r.close(t)
}
