package mount

import (
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/sluice-storage/sluice/internal/alloctest"
	"golang.org/x/sys/unix"
)

// TestRequestsAllocateNothing: those that are answered from what the client knows, and writes that
// are gathered.
func TestRequestsAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has pools forget what they are given")
	}
	c := newCluster(t, 2)
	m := c.mount(Options{})
	b := m.bridge
	cancel := make(chan struct{})
	root := fuse.InHeader{NodeId: fuse.FUSE_ROOT_ID}
	var made fuse.CreateOut
	in := fuse.CreateIn{InHeader: root, Flags: unix.O_RDWR, Mode: 0o644}
	ok(t, b.Create(cancel, &in, "f", &made))
	h := fuse.InHeader{NodeId: made.NodeId}
	data := pattern(64<<10, 1)
	off := uint64(0)
	write := func() {
		n, s := b.Write(cancel, &fuse.WriteIn{InHeader: h, Fh: made.Fh, Offset: off}, data)
		if ok(t, s); int(n) != len(data) {
			t.Fatalf("%d bytes", n)
		}
		off += uint64(n)
	}
	write()
	for _, op := range []struct {
		name string
		most float64
		do   func()
	}{
		{"write", 6, write}, // with the servers, which are in this process
		{"getattr", 0, func() {
			ok(t, b.GetAttr(cancel, &fuse.GetAttrIn{InHeader: root}, &fuse.AttrOut{}))
		}},
		{"lookup", 0, func() { ok(t, b.Lookup(cancel, &root, "f", &fuse.EntryOut{})) }},
		{"absent", 0, func() { ok(t, b.Lookup(cancel, &root, "not there", &fuse.EntryOut{})) }},
	} {
		op.do()
		const besides = 0.05 // what servers and clocks in this process do meanwhile, now and then
		if n := alloctest.Mean(op.most, 200, op.do); n > op.most+besides {
			t.Errorf("%s: %v allocations", op.name, n)
		}
	}
	b.Release(cancel, &fuse.ReleaseIn{InHeader: h, Fh: made.Fh})
}

func ok(t *testing.T, s fuse.Status) {
	t.Helper()
	if s != fuse.OK {
		t.Fatal(s)
	}
}
