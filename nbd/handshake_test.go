package nbd

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

func TestUnknownClientFlagsEndTheConnection(t *testing.T) {
	c := connect(t, serve(t, Config{}, newFake(1<<20).entry("x")))
	c.greet(flagFixedNewstyle | 1<<2)
	c.wantEOF()
}

func TestWrongOptionMagicEndsTheConnection(t *testing.T) {
	c := greeted(t, serve(t, Config{}, newFake(1<<20).entry("x")))
	c.write(bytes.Repeat([]byte{1}, optionBytes))
	c.wantEOF()
}

func TestExportName(t *testing.T) {
	for _, clientFlags := range []uint32{0, flagFixedNewstyle, flagNoZeroes} {
		t.Run(fmt.Sprint(clientFlags), func(t *testing.T) {
			f := newFake(1 << 20)
			c := connect(t, serve(t, Config{}, f.entry("x")))
			c.greet(clientFlags)
			c.write(optionMessage(optExportName, []byte("x")))
			p := c.read(10)
			if size := binary.BigEndian.Uint64(p); size != 1<<20 {
				t.Errorf("size %d", size)
			}
			flags := binary.BigEndian.Uint16(p[8:])
			if flags&(sendHasFlags|sendDF) != sendHasFlags {
				t.Errorf("flags %#x", flags)
			}
			if clientFlags&flagNoZeroes == 0 && !bytes.Equal(c.read(124), make([]byte, 124)) {
				t.Error("padding is not zero")
			}
			c.want(nbdOK, cmdWrite, 0, 5, 3, []byte("abc"))
			if a := c.want(nbdOK, cmdRead, 0, 5, 3, nil); string(a.data) != "abc" {
				t.Errorf("read %q", a.data)
			}
		})
	}
}

func TestExportNameCannotFailPolitely(t *testing.T) {
	s := serve(t, Config{}, newFake(1<<20).entry("x"))
	long := strings.Repeat("n", 1<<17)
	for _, name := range []string{"y", "x\x00", long[:5000], long} {
		c := greeted(t, s)
		c.write(optionMessage(optExportName, []byte(name)))
		c.wantEOF()
	}
}

func TestAbort(t *testing.T) {
	c := greeted(t, serve(t, Config{}, newFake(1<<20).entry("x")))
	c.mustAck(optAbort, nil)
	c.wantEOF()
}

func TestList(t *testing.T) {
	a, b := newFake(1), newFake(1)
	withText := b.entry("b")
	withText.Description = "the second"
	c := greeted(t, serve(t, Config{}, a.entry("a"), withText))
	got := c.mustAck(optList, nil)
	want := []string{"\x00\x00\x00\x01a", "\x00\x00\x00\x01bthe second"}
	if len(got) != 2 || string(got[0].data) != want[0] || string(got[1].data) != want[1] {
		t.Errorf("list %v", got)
	}
	c.mustRefuse(optList, []byte("x"), repErrInvalid)
	if a.opens.Load()+b.opens.Load() != 0 {
		t.Error("listing opened an export")
	}
}

func TestUnknownOptionsAreSkipped(t *testing.T) {
	c := greeted(t, serve(t, Config{}, newFake(1<<20).entry("x")))
	for _, n := range []int{0, 1, 70_000, 1 << 20} {
		c.mustRefuse(4, make([]byte, n), repErrUnsup)
		c.mustRefuse(0xdeadbeef, make([]byte, n), repErrUnsup)
	}
	c.mustAck(optGo, infoData("x"))
	c.want(nbdOK, cmdRead, 0, 0, 1, nil)
}

func TestOversizedOptionIsRefused(t *testing.T) {
	c := greeted(t, serve(t, Config{}, newFake(1<<20).entry("x")))
	c.mustRefuse(optGo, make([]byte, optionDataMax+1), repErrTooBig)
	c.mustRefuse(optSetMeta, make([]byte, 1<<20), repErrTooBig)
	c.mustAck(optGo, infoData("x"))
}

func TestTooManyOptionsEndTheConnection(t *testing.T) {
	c := greeted(t, serve(t, Config{}, newFake(1<<20).entry("x")))
	for range optionsMax {
		c.mustRefuse(99, nil, repErrUnsup)
	}
	c.wantEOF()
}

func TestStartTLSIsRefused(t *testing.T) {
	c := greeted(t, serve(t, Config{}, newFake(1<<20).entry("x")))
	c.mustRefuse(optStartTLS, nil, repErrPolicy)
	c.mustRefuse(optStartTLS, []byte("x"), repErrInvalid)
	c.mustAck(optGo, infoData("x"))
}

func TestInfoAndGoSayTheSame(t *testing.T) {
	f := &full{fake: newFake(12345)}
	c := greeted(t, serve(t, Config{}, entryOf("disk", f, f.fake)))
	c.mustAck(optStructuredReply, nil)
	wants := []uint16{infoName, infoDescription, infoBlockSize, 777}
	info := c.mustAck(optInfo, infoData("", wants...))
	if f.opens.Load() != 1 || f.closes.Load() != 1 {
		t.Errorf("after INFO: %d opens, %d closes", f.opens.Load(), f.closes.Load())
	}
	again := c.mustAck(optGo, infoData("", wants...))
	if fmt.Sprint(info) != fmt.Sprint(again) {
		t.Errorf("INFO %v\nGO   %v", info, again)
	}
	got := map[uint16][]byte{}
	for _, r := range info {
		if r.kind != repInfo {
			t.Errorf("reply %#x", r.kind)
		}
		got[binary.BigEndian.Uint16(r.data)] = r.data[2:]
	}
	flags := sendHasFlags | sendFlush | sendFUA | sendTrim | sendWriteZeroes | sendDF |
		sendMultiConn | sendCache | sendFastZero
	wantExport := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint64(nil, 12345), flags)
	if !bytes.Equal(got[infoExport], wantExport) {
		t.Errorf("export information %x, want %x", got[infoExport], wantExport)
	}
	if string(got[infoName]) != "disk" || string(got[infoDescription]) != "a fake disk" {
		t.Errorf("name %q, description %q", got[infoName], got[infoDescription])
	}
	if fmt.Sprintf("%x", got[infoBlockSize]) != "000000010000100002000000" {
		t.Errorf("block sizes %x", got[infoBlockSize])
	}
}

func TestReadOnlyFlags(t *testing.T) {
	f := &full{fake: newFake(4096)}
	e := entryOf("x", f, f.fake)
	e.ReadOnly = true
	c := greeted(t, serve(t, Config{}, e))
	info := c.mustAck(optGo, infoData("x"))
	flags := binary.BigEndian.Uint16(info[0].data[10:])
	if flags&sendReadOnly == 0 || flags&(sendTrim|sendWriteZeroes|sendFastZero|sendFUA) != 0 {
		t.Errorf("flags of a read-only export %#x", flags)
	}
}

func TestMalformedInfo(t *testing.T) {
	c := greeted(t, serve(t, Config{}, newFake(1<<20).entry("x")))
	for _, data := range [][]byte{
		nil, {0}, {0, 0, 0, 1}, {0xff, 0xff, 0xff, 0xff}, text("x"),
		append(infoData("x"), 0), infoData("x", 1)[:8], infoData("x\x00"),
		infoData(strings.Repeat("n", 4097)),
	} {
		c.mustRefuse(optGo, data, repErrInvalid)
		c.mustRefuse(optInfo, data, repErrInvalid)
	}
	c.mustRefuse(optGo, infoData("nobody"), repErrUnknown)
	c.mustAck(optGo, infoData("x"))
}

func TestOpenFailures(t *testing.T) {
	for kind, want := range map[errs.Kind]uint32{
		errs.Busy: repErrPolicy, errs.NotFound: repErrUnknown, errs.IO: repErrPlatform,
		errs.Shutdown: repErrShutdown,
	} {
		fail := true
		f := newFake(4096)
		s := serve(t, Config{}, Entry{Name: "x", Open: func(context.Context) (Export, error) {
			if fail {
				return nil, errs.New(kind, "secret", "path", nil)
			}
			return f, nil
		}})
		c := greeted(t, s)
		got := c.option(optGo, infoData("x"))
		if got[0].kind != want || bytes.Contains(got[0].data, []byte("secret")) {
			t.Errorf("%v: %#x %q, want %#x", kind, got[0].kind, got[0].data, want)
		}
		fail = false
		c.mustAck(optGo, infoData("x"))
	}
}

func TestPanicInOpenEndsOnlyThatConnection(t *testing.T) {
	calls := 0
	f := newFake(4096)
	s := serve(t, Config{}, Entry{Name: "x", Open: func(context.Context) (Export, error) {
		if calls++; calls == 1 {
			panic("bug")
		}
		return f, nil
	}})
	c := greeted(t, s)
	c.write(optionMessage(optGo, infoData("x")))
	c.wantEOF()
	ready(t, s, "x", true).want(nbdOK, cmdRead, 0, 0, 1, nil)
	if s.Stats().Panics != 1 {
		t.Errorf("%d panics counted", s.Stats().Panics)
	}
}

func TestMetaContexts(t *testing.T) {
	s := serve(t, Config{}, newFake(1<<20).entry("x"), newFake(1<<20).entry("y"))
	c := greeted(t, s)
	c.mustRefuse(optSetMeta, metaData("x", metaBase), repErrInvalid)
	c.mustRefuse(optListMeta, metaData("x"), repErrInvalid)
	c.mustRefuse(optStructuredReply, []byte("x"), repErrInvalid)
	c.mustAck(optStructuredReply, nil)
	c.mustRefuse(optSetMeta, metaData("nobody", metaBase), repErrUnknown)
	for _, bad := range [][]byte{nil, text("x"), metaData("x", "a")[:12], append(metaData("x"), 1),
		append(text("x"), 0xff, 0xff, 0xff, 0xff)} {
		c.mustRefuse(optSetMeta, bad, repErrInvalid)
	}
	for _, q := range []struct {
		opt     uint32
		queries []string
		found   bool
	}{
		{optListMeta, nil, true},
		{optListMeta, []string{"base:"}, true},
		{optListMeta, []string{"base:allocation"}, true},
		{optListMeta, []string{"qemu:", "base:nothing", ""}, false},
		{optSetMeta, nil, false},
		{optSetMeta, []string{"base:"}, false},
		{optSetMeta, []string{"sluice:place", "base:other"}, false},
		{optSetMeta, []string{"x", "base:allocation", "base:allocation"}, true},
	} {
		got := c.mustAck(q.opt, metaData("x", q.queries...))
		if q.found != (len(got) == 1) {
			t.Errorf("option %d %q: %v", q.opt, q.queries, got)
		}
		if q.found && string(got[0].data[4:]) != metaBase {
			t.Errorf("context %q", got[0].data)
		}
	}
}

// TestMetaSelectionIsBound: a selection counts for its export only, and a failed one clears it.
func TestMetaSelectionIsBound(t *testing.T) {
	s := serve(t, Config{}, newFake(1<<20).entry("x"), newFake(1<<20).entry("y"))
	status := func(prepare func(c *client), want uint32) {
		t.Helper()
		c := greeted(t, s)
		c.mustAck(optStructuredReply, nil)
		c.structured = true
		prepare(c)
		c.mustAck(optGo, infoData("x"))
		c.want(want, cmdBlockStatus, 0, 0, 4096, nil)
		c.want(nbdOK, cmdRead, 0, 0, 1, nil)
	}
	status(func(c *client) { c.mustAck(optSetMeta, metaData("x", metaBase)) }, nbdOK)
	status(func(*client) {}, nbdINVAL)
	status(func(c *client) { c.mustAck(optSetMeta, metaData("y", metaBase)) }, nbdINVAL)
	status(func(c *client) { c.mustAck(optListMeta, metaData("x", metaBase)) }, nbdINVAL)
	status(func(c *client) {
		c.mustAck(optSetMeta, metaData("x", metaBase))
		c.mustRefuse(optSetMeta, metaData("nobody", metaBase), repErrUnknown)
	}, nbdINVAL)
	status(func(c *client) {
		c.mustAck(optSetMeta, metaData("x", metaBase))
		c.mustAck(optSetMeta, metaData("x"))
	}, nbdINVAL)
}

func TestHandshakeTakesTooLong(t *testing.T) {
	s := serve(t, Config{HandshakeTimeout: 30 * time.Millisecond}, newFake(1).entry("x"))
	c := greeted(t, s)
	c.wantEOF()
	// Who is through has all the time. The limit is one that a busy host keeps, too.
	const limit = 2 * time.Second
	s = serve(t, Config{HandshakeTimeout: limit}, newFake(1).entry("x"))
	d := ready(t, s, "x", true)
	time.Sleep(limit + limit/10)
	d.want(nbdOK, cmdRead, 0, 0, 1, nil)
}

func TestConnectionsAreBounded(t *testing.T) {
	s := serve(t, Config{MaxConns: 2}, newFake(1).entry("x"))
	a := ready(t, s, "x", true)
	ready(t, s, "x", true)
	connect(t, s).wantEOF()
	if st := s.Stats(); st.Refused != 1 || st.Conns != 2 || st.Accepted != 2 {
		t.Errorf("%+v", st)
	}
	a.want(nbdOK, cmdRead, 0, 0, 1, nil)
}

func TestEntriesAndConfigAreChecked(t *testing.T) {
	ok := newFake(1).entry("x")
	for what, make := range map[string]func() (*Server, error){
		"two of one name": func() (*Server, error) { return NewServer(Config{}, ok, ok) },
		"no Open":         func() (*Server, error) { return NewServer(Config{}, Entry{Name: "x"}) },
		"NUL in name": func() (*Server, error) {
			return NewServer(Config{}, Entry{Name: "a\x00", Open: ok.Open})
		},
		"odd payload":   func() (*Server, error) { return NewServer(Config{MaxPayload: 100_000}) },
		"little memory": func() (*Server, error) { return NewServer(Config{MemoryBytes: 4096}) },
		"negative":      func() (*Server, error) { return NewServer(Config{ConnRequests: -1}) },
		"backwards":     func() (*Server, error) { return NewServer(Config{StallTimeout: -1}) },
	} {
		if _, err := make(); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	for _, b := range [][3]uint32{
		{0, 1, 1}, {3, 4, 0}, {1 << 17, 1 << 17, 0}, {512, 256, 0}, {512, 512, 100},
	} {
		f := newFake(1 << 20)
		c := greeted(t, serve(t, Config{}, entryOf("x", sized{f, b[0], b[1], b[2]}, f)))
		c.mustRefuse(optGo, infoData("x"), repErrPlatform)
		if f.closes.Load() != 1 {
			t.Errorf("block sizes %v: export left open", b)
		}
	}
}

// TestPipe runs over a connection that has no vectored write.
func TestPipe(t *testing.T) {
	f := newFake(1 << 20)
	s := serve(t, Config{}, f.entry("x"))
	c := readyOverPipe(t, s, "x")
	c.want(nbdOK, cmdWrite, 0, 100, 5, []byte("hello"))
	if a := c.want(nbdOK, cmdRead, 0, 100, 5, nil); string(a.data) != "hello" {
		t.Errorf("read %q", a.data)
	}
}
