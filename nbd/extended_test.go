package nbd

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/sluice-storage/sluice/errs"
)

// vast is an export of more than 4 GiB whose every call is noted and none does anything.
type vast struct {
	*full
	bytes  int64
	zeroed chan [2]int64
}

func (v *vast) Size() int64 { return v.bytes }

func (v *vast) ReadAt(_ context.Context, p []byte, _ int64) error { clear(p); return nil }

func (v *vast) WriteZeroes(_ context.Context, off, length int64, _ ZeroFlags) error {
	v.zeroed <- [2]int64{off, length}
	return nil
}

func (v *vast) Trim(_ context.Context, off, length int64, _ bool) error {
	v.zeroed <- [2]int64{off, length}
	return nil
}

func (v *vast) Map(_ context.Context, off, length int64, _ int, dst []Extent) ([]Extent, error) {
	return append(dst, Extent{Len: v.bytes - off, Hole: true, Zero: true}), nil
}

// doExt sends a request with an extended header as it is.
func (c *client) doExt(h header, payload []byte) answer {
	c.tb.Helper()
	c.cookie++
	h.cookie = c.cookie
	if c.offsets == nil {
		c.offsets = map[uint64]uint64{}
	}
	c.offsets[h.cookie] = h.offset
	c.write(extMessage(h, payload))
	return c.receive(h.cmd, h.offset, uint32(h.length))
}

func TestExtendedLengths(t *testing.T) {
	const size = 1 << 44
	v := &vast{full: &full{fake: newFake(mib)}, bytes: size, zeroed: make(chan [2]int64, 1)}
	s := serve(t, Config{}, entryOf("x", v, v.fake))
	c := readyExt(t, s, "x")
	for _, cmd := range []uint16{cmdTrim, cmdWriteZeroes} {
		if a := c.doExt(header{cmd: cmd, offset: 7, length: size - 7}, nil); a.errno != nbdOK {
			t.Fatalf("command %d over 16 TiB: %d", cmd, a.errno)
		}
		if got := <-v.zeroed; got != [2]int64{7, size - 7} {
			t.Errorf("command %d arrived as %v", cmd, got)
		}
	}
	a := c.doExt(header{cmd: cmdBlockStatus, offset: 1, length: size - 1}, nil)
	if fmt.Sprint(a.states[metaBaseID]) != fmt.Sprint([]uint64{size - 1, 3}) {
		t.Errorf("status of 16 TiB: %v", a.states)
	}
	for _, q := range []struct {
		errno  uint32
		cmd    uint16
		length uint64
	}{
		{nbdOVERFLOW, cmdRead, 1 << 40}, {nbdOVERFLOW, cmdRead, 1 << 63},
		{nbdINVAL, cmdTrim, 1 << 63}, {nbdNOSPC, cmdWriteZeroes, ^uint64(0)},
		{nbdINVAL, cmdBlockStatus, size + 1}, {nbdINVAL, cmdCache, ^uint64(0)},
		{nbdOK, cmdCache, size},
	} {
		if a := c.doExt(header{cmd: q.cmd, length: q.length}, nil); a.errno != q.errno {
			t.Errorf("command %d, %d bytes: error %d, want %d", q.cmd, q.length, a.errno, q.errno)
		}
	}
}

// TestExtendedPayloads: what carries a payload that it must not, and what lacks one, is refused,
// and the stream goes on behind it.
func TestExtendedPayloads(t *testing.T) {
	f := &full{fake: newFake(mib)}
	s := serve(t, Config{}, entryOf("x", f, f.fake))
	c := readyExt(t, s, "x")
	junk := make([]byte, 5000)
	for _, cmd := range []uint16{cmdRead, cmdTrim, cmdWriteZeroes, cmdCache, cmdFlush,
		cmdBlockStatus, 8, 77} {
		h := header{cmd: cmd, flags: cmdFlagPayload, length: uint64(len(junk))}
		if a := c.doExt(h, junk); a.errno != nbdINVAL {
			t.Errorf("command %d with a payload: error %d", cmd, a.errno)
		}
	}
	if a := c.doExt(header{cmd: cmdWrite, length: 4096}, nil); a.errno != nbdINVAL {
		t.Errorf("write without payload: error %d", a.errno)
	}
	big := header{cmd: cmdWrite, flags: cmdFlagPayload, length: 64*mib + 1}
	if a := c.doExt(big, make([]byte, big.length)); a.errno != nbdINVAL {
		t.Errorf("long write: error %d", a.errno)
	}
	c.want(nbdOK, cmdWrite, 0, 0, 3, []byte("abc"))
	if a := c.want(nbdOK, cmdRead, 0, 0, 3, nil); string(a.data) != "abc" {
		t.Errorf("%q", a.data)
	}
	// Nobody skips a payload of 16 EiB.
	c.write(extMessage(header{cmd: cmdWrite, flags: cmdFlagPayload, length: 1 << 63}, nil))
	c.wantEOF()
}

func TestExtendedNegotiation(t *testing.T) {
	s := serve(t, Config{}, newFake(mib).entry("x"))
	c := greeted(t, s)
	c.mustRefuse(optExtHeaders, []byte{0}, repErrInvalid)
	c.mustAck(optStructuredReply, nil)
	c.mustAck(optExtHeaders, nil)
	c.mustRefuse(optExtHeaders, nil, repErrInvalid)
	c.mustRefuse(optStructuredReply, nil, repErrExtReqd)
	flags := func(name string) uint16 {
		return binary.BigEndian.Uint16(c.mustAck(optInfo, infoData(name))[0].data[10:])
	}
	if flags("x")&sendStatusLoad != 0 {
		t.Error("filters of contexts are offered before there is one")
	}
	c.mustAck(optSetMeta, metaData("x", metaBase))
	if flags("x")&(sendStatusLoad|sendDF) != sendStatusLoad|sendDF {
		t.Errorf("flags %#x", flags("x"))
	}
	c.mustAck(optGo, infoData("x"))
	c.write(requestMessage(header{cmd: cmdRead, length: 1}, make([]byte, 4)))
	c.wantEOF() // the compact header has another magic

	named := greeted(t, s)
	named.mustAck(optExtHeaders, nil)
	named.write(optionMessage(optExportName, []byte("x")))
	named.wantEOF()
}

func TestExtendedErrorsSayWhere(t *testing.T) {
	f := &full{fake: newFake(mib)}
	for i := range f.data {
		f.data[i] = 1
	}
	clear(f.data[256<<10 : 512<<10])
	f.setHook(func(op string, off int64) error {
		if op == "read" && off >= 512<<10 {
			return errs.New(errs.IO, "disk", "", nil)
		}
		return nil
	})
	c := readyExt(t, serve(t, Config{}, entryOf("x", f, f.fake)), "x")
	a := c.want(nbdIO, cmdRead, 0, 4096, mib-4096, nil)
	if !a.located || a.errorOff != 512<<10 || a.message == "" {
		t.Errorf("%+v", a)
	}
	a = c.want(nbdOK, cmdRead, 0, 0, 512<<10, nil)
	if fmt.Sprint(a.kinds) != "[1 2]" {
		t.Errorf("chunks %v", a.kinds)
	}
}

// placed is an export with two contexts: runs of 64 KiB that alternate, and one run that reaches
// past the range.
type placed struct{ *fake }

func (p placed) Contexts() []Context {
	return []Context{
		{Name: "test:place", Status: func(
			_ context.Context, off, length int64, most int, dst []Status,
		) ([]Status, error) {
			const unit = 64 << 10
			for end := off + length; off < end && most > 0; most-- {
				n := unit - off%unit
				dst = append(dst, Status{Len: n, Flags: uint32(off / unit % 4)})
				off += n
			}
			return dst, nil
		}},
		{Name: "test:whole", Status: func(
			_ context.Context, _, _ int64, _ int, dst []Status,
		) ([]Status, error) {
			return append(dst, Status{Len: 1 << 60, Flags: 1 << 31}), nil
		}},
		{Name: "test:broken", Status: func(
			context.Context, int64, int64, int, []Status,
		) ([]Status, error) {
			return nil, errs.New(errs.IO, "test", "", nil)
		}},
	}
}

func placedEntry() Entry {
	f := placed{newFake(mib)}
	e := entryOf("x", f, f.fake)
	e.Contexts = []string{"test:place", "test:whole", "test:missing", "test:broken"}
	return e
}

func TestContexts(t *testing.T) {
	s := serve(t, Config{}, placedEntry(), newFake(mib).entry("plain"))
	c := greeted(t, s)
	c.mustAck(optStructuredReply, nil)
	for _, q := range []struct {
		queries []string
		found   int
	}{
		{nil, 5}, {[]string{"base:"}, 1}, {[]string{"test:"}, 4}, {[]string{"test:", "base:"}, 5},
		{[]string{"test:whole"}, 1}, {[]string{"test:w"}, 0}, {[]string{"", "x:"}, 0},
	} {
		if got := c.mustAck(optListMeta, metaData("x", q.queries...)); len(got) != q.found {
			t.Errorf("%q lists %d contexts, want %d", q.queries, len(got), q.found)
		}
	}
	if got := c.mustAck(optSetMeta, metaData("x", "test:", "test:place", metaBase)); len(got) != 2 {
		t.Errorf("%d contexts selected", len(got))
	}
	if got := c.mustAck(optSetMeta, metaData("plain", "test:place")); len(got) != 0 {
		t.Errorf("another export has them, too: %v", got)
	}
}

// TestContextStatus: one chunk for each context that was selected, or asked for.
func TestContextStatus(t *testing.T) {
	s := serve(t, Config{}, placedEntry())
	c := readyExt(t, s, "x", "test:place", "test:whole", "test:missing")
	a := c.want(nbdOK, cmdBlockStatus, 0, 4096, 100_000, nil)
	want := map[uint32][]uint64{
		1: {100_000, 0}, 2: {61440, 0, 38560, 1}, 3: {100_000, 1 << 31}, 4: {100_000, 0},
	}
	if fmt.Sprint(a.states) != fmt.Sprint(want) {
		t.Errorf("%v\nwant %v", a.states, want)
	}
	a = c.want(nbdOK, cmdBlockStatus, cmdFlagReqOne, 4096, 100_000, nil)
	if fmt.Sprint(a.states[2]) != "[61440 0]" || len(a.states) != 4 {
		t.Errorf("one each: %v", a.states)
	}
	filter := func(length uint64, ids ...uint32) answer {
		p := binary.BigEndian.AppendUint64(nil, length)
		for _, id := range ids {
			p = binary.BigEndian.AppendUint32(p, id)
		}
		return c.doExt(header{cmd: cmdBlockStatus, flags: cmdFlagPayload, length: uint64(len(p))}, p)
	}
	if a := filter(1000, 3, 2); len(a.states) != 2 || fmt.Sprint(a.states[2]) != "[1000 0]" {
		t.Errorf("filtered: %v", a.states)
	}
	for name, bad := range map[string]answer{
		"none": filter(1000), "twice": filter(1000, 2, 2), "unknown": filter(1000, 9),
		"not selected": filter(1000, 5), "zero": filter(1000, 0), "empty": filter(0, 1),
		"huge": filter(1<<62, 1), "far": filter(1000, 1<<31),
	} {
		if bad.errno != nbdINVAL {
			t.Errorf("%s: error %d", name, bad.errno)
		}
	}
	compact := greeted(t, s)
	compact.mustAck(optStructuredReply, nil)
	compact.structured = true
	compact.mustAck(optSetMeta, metaData("x", "test:whole", "test:place"))
	compact.mustAck(optGo, infoData("x"))
	a = compact.want(nbdOK, cmdBlockStatus, 0, 0, 70_000, nil)
	if fmt.Sprint(a.states) != fmt.Sprint(map[uint32][]uint64{
		2: {65536, 0, 4464, 1}, 3: {70_000, 1 << 31},
	}) {
		t.Errorf("compact: %v", a.states)
	}
	broken := readyExt(t, s, "x", "test:broken")
	broken.want(nbdIO, cmdBlockStatus, 0, 0, 4096, nil)
	broken.want(nbdOK, cmdRead, 0, 0, 1, nil)
}
