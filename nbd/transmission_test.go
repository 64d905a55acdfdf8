package nbd

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/sluice-storage/sluice/errs"
)

const mib = 1 << 20

// shapes are the kinds of exports that take different ways through the server.
func shapes(size int) map[string]func() (Export, *fake) {
	return map[string]func() (Export, *fake){
		"plain": func() (Export, *fake) { f := newFake(size); return f, f },
		"full":  func() (Export, *fake) { f := &full{fake: newFake(size)}; return f, f.fake },
		"slicing": func() (Export, *fake) {
			f := &full{fake: newFake(size)}
			return slicing{f}, f.fake
		},
		"cached": func() (Export, *fake) { f := newFake(size); return cached{f}, f },
	}
}

// eachShape runs a test over every shape with simple and with structured replies.
func eachShape(t *testing.T, size int, test func(t *testing.T, c *client, f *fake)) {
	for name, build := range shapes(size) {
		for _, headers := range []string{"simple", "structured", "extended"} {
			t.Run(name+" "+headers, func(t *testing.T) {
				exp, f := build()
				s := serve(t, Config{}, entryOf("x", exp, f))
				if headers == "extended" {
					test(t, readyExt(t, s, "x"), f)
					return
				}
				test(t, ready(t, s, "x", headers == "structured"), f)
			})
		}
	}
}

func random(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n)}).Read(p) // never fails
	return p
}

func TestReadWhatWasWritten(t *testing.T) {
	eachShape(t, 8*mib, func(t *testing.T, c *client, f *fake) {
		for _, n := range []int{0, 1, 511, 4096, 65536, 70_001, mib, 5*mib + 3} {
			p := random(n)
			off := uint64(mib + 17)
			c.want(nbdOK, cmdWrite, 0, off, uint32(n), p)
			if a := c.want(nbdOK, cmdRead, 0, off, uint32(n), nil); !bytes.Equal(a.data, p) {
				t.Fatalf("%d bytes come back changed", n)
			}
			whole := c.want(nbdOK, cmdRead, 0, 0, 8*mib, nil)
			f.mu.RLock()
			if !bytes.Equal(whole.data, f.data) {
				t.Fatalf("the whole device reads wrong after %d bytes", n)
			}
			f.mu.RUnlock()
		}
	})
}

func TestErrorsKeepTheConnection(t *testing.T) {
	const size = 4 * mib
	eachShape(t, size, func(t *testing.T, c *client, _ *fake) {
		for _, q := range []struct {
			errno      uint32
			cmd, flags uint16
			off        uint64
			n          uint32
			payload    int
		}{
			{nbdINVAL, cmdRead, 0, size, 1, 0},
			{nbdINVAL, cmdRead, 0, size - 1, 2, 0},
			{nbdINVAL, cmdRead, 0, ^uint64(0), 2, 0},
			{nbdINVAL, cmdRead, 0, 1 << 63, 2, 0},
			{nbdOVERFLOW, cmdRead, 0, 0, 64*mib + 1, 0},
			{nbdOVERFLOW, cmdRead, 0, 0, ^uint32(0), 0},
			{nbdINVAL, cmdRead, cmdFlagNoHole, 0, 1, 0},
			{nbdINVAL, cmdRead, 1 << 15, 0, 1, 0},
			{nbdNOSPC, cmdWrite, 0, size, 1, 1},
			{nbdNOSPC, cmdWrite, cmdFlagFUA, size - 10, 1000, 1000},
			{nbdNOSPC, cmdWrite, 0, ^uint64(0) - 5, 100, 100},
			{nbdINVAL, cmdWrite, cmdFlagDF, 0, 100, 100},
			{nbdINVAL, cmdWrite, 1 << 6, 0, 70_000, 70_000},
			{nbdINVAL, cmdWrite, 0, 0, 64*mib + 1, 64*mib + 1},
			{nbdNOSPC, cmdWriteZeroes, 0, size - 1, 2, 0},
			{nbdINVAL, cmdWriteZeroes, cmdFlagReqOne, 0, 1, 0},
			{nbdINVAL, cmdFlush, 0, 0, 1, 0},
			{nbdINVAL, cmdFlush, 0, 1, 0, 0},
			{nbdINVAL, cmdFlush, cmdFlagDF, 0, 0, 0},
			{nbdINVAL, cmdTrim, 0, size, 1, 0},
			{nbdINVAL, cmdTrim, cmdFlagNoHole, 0, 1, 0},
			{nbdINVAL, cmdCache, 0, size, 1, 0},
			{nbdINVAL, cmdCache, 1 << 6, 0, 1, 0},
			{nbdINVAL, cmdBlockStatus, 0, size, 1, 0},
			{nbdINVAL, cmdBlockStatus, 0, 0, 0, 0},
			{nbdINVAL, cmdBlockStatus, cmdFlagDF, 0, 1, 0},
			{nbdINVAL, 8, 0, 0, 0, 0},
			{nbdINVAL, 0xffff, 0, 0, 0, 0},
		} {
			a := c.want(q.errno, q.cmd, q.flags, q.off, q.n, make([]byte, q.payload))
			if c.structured && a.message == "" {
				t.Errorf("%+v: error without a message", q)
			}
		}
		if !c.structured {
			c.want(nbdINVAL, cmdRead, cmdFlagDF, 0, 1, nil)
			c.want(nbdINVAL, cmdBlockStatus, 0, 0, 4096, nil)
		}
		c.want(nbdOK, cmdRead, 0, 0, 1, nil)
	})
}

func TestReadOnlyIsEPERM(t *testing.T) {
	f := &full{fake: newFake(mib)}
	e := entryOf("x", f, f.fake)
	e.ReadOnly = true
	c := ready(t, serve(t, Config{}, e), "x", true)
	c.want(nbdPERM, cmdWrite, 0, 0, 5000, make([]byte, 5000))
	c.want(nbdPERM, cmdWrite, 0, 2*mib, 5000, make([]byte, 5000))
	c.want(nbdPERM, cmdTrim, 0, 0, 4096, nil)
	c.want(nbdPERM, cmdWriteZeroes, 0, 0, 4096, nil)
	c.want(nbdOK, cmdFlush, 0, 0, 0, nil)
	c.want(nbdOK, cmdRead, cmdFlagFUA, 0, 4096, nil)
	c.want(nbdOK, cmdCache, 0, 0, 4096, nil)
}

func TestFlagsReachTheExport(t *testing.T) {
	f := &full{fake: newFake(mib)}
	c := ready(t, serve(t, Config{}, entryOf("x", f, f.fake)), "x", true)
	c.want(nbdOK, cmdWrite, 0, 0, 1, []byte{1})
	if f.fuas.Load() != 0 {
		t.Error("FUA was invented")
	}
	c.want(nbdOK, cmdWrite, cmdFlagFUA, 0, 1, []byte{1})
	if f.fuas.Load() != 1 {
		t.Error("FUA was lost")
	}
	all := cmdFlagFUA | cmdFlagNoHole | cmdFlagFastZero
	for flags, want := range map[uint16]ZeroFlags{
		0: {}, cmdFlagFUA: {FUA: true}, cmdFlagNoHole: {NoHole: true},
		cmdFlagFastZero: {Fast: true},
		all:             {FUA: true, NoHole: true, Fast: true},
	} {
		c.want(nbdOK, cmdWriteZeroes, flags, 0, mib, nil)
		if got := f.zeroFlags.Load(); got != want {
			t.Errorf("flags %#x arrive as %+v", flags, got)
		}
	}
	c.want(nbdOK, cmdTrim, cmdFlagFUA, 0, 4096, nil)
	c.want(nbdOK, cmdFlush, cmdFlagFUA, 0, 0, nil)
	c.want(nbdOK, cmdCache, cmdFlagFUA, 0, 4096, nil)
	c.want(nbdOK, cmdBlockStatus, cmdFlagFUA, 0, 4096, nil)
	if f.trims.Load() != 1 || f.flushes.Load() != 1 {
		t.Errorf("%d trims, %d flushes", f.trims.Load(), f.flushes.Load())
	}
}

// TestZeroesWithoutZeroer: the server writes them, and refuses what must be fast.
func TestZeroesWithoutZeroer(t *testing.T) {
	plain := newFake(4 * mib)
	refusing := &full{fake: newFake(4 * mib), noZero: true}
	for name, e := range map[string]struct {
		exp Export
		f   *fake
	}{"plain": {plain, plain}, "refusing": {refusing, refusing.fake}} {
		t.Run(name, func(t *testing.T) {
			f := e.f
			for i := range f.data {
				f.data[i] = 1
			}
			c := ready(t, serve(t, Config{}, entryOf("x", e.exp, f)), "x", true)
			c.want(nbdNOTSUP, cmdWriteZeroes, cmdFlagFastZero, 1, 3*mib, nil)
			if !bytes.Equal(f.data, bytes.Repeat([]byte{1}, 4*mib)) {
				t.Error("a refused fast zero has changed data")
			}
			c.want(nbdOK, cmdWriteZeroes, cmdFlagFUA, 1, 3*mib, nil)
			if f.flushes.Load() != 1 {
				t.Errorf("%d flushes for FUA", f.flushes.Load())
			}
			zeroed := f.data[1 : 3*mib+1]
			if f.data[0] != 1 || f.data[3*mib+1] != 1 || len(bytes.Trim(zeroed, "\x00")) > 0 {
				t.Error("the wrong bytes were zeroed")
			}
		})
	}
	c := ready(t, serve(t, Config{}, plain.entry("x")), "x", true)
	c.want(nbdINVAL, cmdTrim, 0, 0, 4096, nil)
}

func TestErrorKindsOnTheWire(t *testing.T) {
	for kind, want := range map[errs.Kind]uint32{
		errs.NoSpace: nbdNOSPC, errs.Quota: nbdNOSPC, errs.TooBig: nbdNOSPC,
		errs.Perm: nbdPERM, errs.Access: nbdPERM, errs.ReadOnly: nbdPERM,
		errs.Invalid: nbdINVAL, errs.Unsupported: nbdINVAL, errs.Shutdown: nbdSHUTDOWN,
		errs.IO: nbdIO, errs.Corrupt: nbdIO, errs.NoMemory: nbdIO, errs.Fenced: nbdIO,
	} {
		f := &full{fake: newFake(mib)}
		f.setHook(func(op string, _ int64) error {
			if op == "map" {
				return nil
			}
			return errs.New(kind, "disk", "secret", nil)
		})
		c := ready(t, serve(t, Config{}, entryOf("x", f, f.fake)), "x", true)
		for _, cmd := range []uint16{cmdRead, cmdWrite} {
			n := uint32(4096)
			a := c.want(want, cmd, 0, 8192, n, make([]byte, int(cmd)*int(n)))
			if a.message != kind.String() {
				t.Errorf("%v: message %q", kind, a.message)
			}
			if cmd == cmdRead && (!a.located || a.errorOff != 8192) {
				t.Errorf("read error without its offset: %+v", a)
			}
		}
		c.want(want, cmdFlush, 0, 0, 0, nil)
		if kind != errs.Unsupported {
			c.want(want, cmdTrim, 0, 0, 1, nil)
			c.want(want, cmdWriteZeroes, 0, 0, 1, nil)
		}
	}
}

// TestReadErrorInTheMiddle: the offset of the run that failed comes with the error.
func TestReadErrorInTheMiddle(t *testing.T) {
	f := &full{fake: newFake(mib)}
	copy(f.data[0:], bytes.Repeat([]byte{1}, 4096))
	copy(f.data[512<<10:], bytes.Repeat([]byte{1}, 4096))
	f.setHook(func(op string, off int64) error {
		if op == "read" && off >= 512<<10 {
			return errs.IO
		}
		return nil
	})
	c := ready(t, serve(t, Config{}, entryOf("x", f, f.fake)), "x", true)
	a := c.want(nbdIO, cmdRead, 0, 0, mib, nil)
	if !a.located || a.errorOff != 512<<10 {
		t.Errorf("%+v", a)
	}
	c.want(nbdOK, cmdRead, 0, 0, 256<<10, nil)
}

func TestHoleChunks(t *testing.T) {
	for _, lent := range []bool{false, true} {
		f := &full{fake: newFake(mib)}
		copy(f.data[128<<10:], random(128<<10))
		exp := Export(f)
		if lent {
			exp = slicing{f}
		}
		s := serve(t, Config{}, entryOf("x", exp, f.fake))
		c := ready(t, s, "x", true)
		a := c.want(nbdOK, cmdRead, 0, 0, mib, nil)
		if fmt.Sprint(a.kinds) != fmt.Sprint([]uint16{2, 1, 2}) || !bytes.Equal(a.data, f.data) {
			t.Errorf("lent %v: chunks %v", lent, a.kinds)
		}
		a = c.want(nbdOK, cmdRead, cmdFlagDF, 0, mib, nil)
		if fmt.Sprint(a.kinds) != "[1]" || !bytes.Equal(a.data, f.data) {
			t.Errorf("lent %v: chunks with DF %v", lent, a.kinds)
		}
		a = c.want(nbdOK, cmdRead, 0, 300<<10, 100<<10, nil)
		if fmt.Sprint(a.kinds) != "[2]" || !bytes.Equal(a.data, make([]byte, 100<<10)) {
			t.Errorf("lent %v: chunks of a hole %v", lent, a.kinds)
		}
		plain := ready(t, s, "x", false)
		if a = plain.want(nbdOK, cmdRead, 0, 0, mib, nil); !bytes.Equal(a.data, f.data) {
			t.Errorf("lent %v: simple reply differs", lent)
		}
		if lent && f.released.Load() == 0 {
			t.Error("slices were not released")
		}
	}
}

// TestManyRuns reads and maps more runs than one reply tells apart.
func TestManyRuns(t *testing.T) {
	f := &full{fake: newFake(64 * mib)}
	for off := 0; off < len(f.data); off += 8192 {
		f.data[off] = 1
	}
	c := ready(t, serve(t, Config{}, entryOf("x", f, f.fake)), "x", true)
	if a := c.want(nbdOK, cmdRead, 0, 0, mib, nil); !bytes.Equal(a.data, f.data[:mib]) {
		t.Error("read differs")
	}
	a := c.want(nbdOK, cmdBlockStatus, 0, 0, 64*mib, nil)
	if len(a.extents) != 2*4095 {
		t.Fatalf("%d descriptors", len(a.extents)/2)
	}
	for i := 0; i < len(a.extents); i += 2 {
		state := uint32(i / 2 % 2 * 3)
		if a.extents[i] != 4096 || a.extents[i+1] != state {
			t.Fatalf("descriptor %d: %v", i/2, a.extents[i:i+2])
		}
	}
}

func TestBlockStatus(t *testing.T) {
	f := &full{fake: newFake(mib)}
	copy(f.data[64<<10:], random(64<<10))
	var failing atomic.Bool
	f.setHook(func(string, int64) error {
		if failing.Load() {
			return errs.IO
		}
		return nil
	})
	s := serve(t, Config{}, entryOf("x", f, f.fake), newFake(mib).entry("plain"))
	c := ready(t, s, "x", true)
	for _, q := range []struct {
		flags uint16
		off   uint64
		n     uint32
		want  []uint32
	}{
		{0, 0, mib, []uint32{64 << 10, 3, 64 << 10, 0, 896 << 10, 3}},
		{cmdFlagReqOne, 0, mib, []uint32{64 << 10, 3}},
		{cmdFlagReqOne, 0, 1000, []uint32{1000, 3}},
		{0, 100, 1000, []uint32{1000, 3}},
		{0, 64<<10 + 1, 10, []uint32{10, 0}},
		{0, mib - 1, 1, []uint32{1, 3}},
	} {
		a := c.want(nbdOK, cmdBlockStatus, q.flags, q.off, q.n, nil)
		if fmt.Sprint(a.extents) != fmt.Sprint(q.want) {
			t.Errorf("%d+%d: %v, want %v", q.off, q.n, a.extents, q.want)
		}
	}
	a := ready(t, s, "plain", true).want(nbdOK, cmdBlockStatus, 0, 5, 10_000, nil)
	if fmt.Sprint(a.extents) != "[10000 0]" {
		t.Errorf("without a map: %v", a.extents)
	}
	failing.Store(true)
	c.want(nbdIO, cmdBlockStatus, 0, 0, mib, nil)
}

// TestLyingMap: an export's wrong map must not make us loop or send nonsense.
func TestLyingMap(t *testing.T) {
	for name, exts := range map[string][]Extent{
		"nothing": {}, "empty": {{Len: 0}}, "negative": {{Len: -5, Zero: true}},
	} {
		t.Run(name, func(t *testing.T) {
			f := lying{newFake(mib), exts}
			c := ready(t, serve(t, Config{}, entryOf("x", f, f.fake)), "x", true)
			c.want(nbdIO, cmdBlockStatus, 0, 0, mib, nil)
			c.want(nbdIO, cmdRead, 0, 0, mib, nil)
			c.want(nbdOK, cmdRead, 0, 0, 512, nil)
		})
	}
}

func TestMinimumBlockSize(t *testing.T) {
	f := newFake(mib)
	c := ready(t, serve(t, Config{}, entryOf("x", sized{f, 512, 4096, 0}, f)), "x", true)
	c.want(nbdINVAL, cmdRead, 0, 1, 512, nil)
	c.want(nbdINVAL, cmdRead, 0, 512, 511, nil)
	c.want(nbdINVAL, cmdWrite, 0, 0, 100, make([]byte, 100))
	c.want(nbdOK, cmdRead, 0, 512, 512, nil)
}

func TestLargestRequests(t *testing.T) {
	f := newFake(65 * mib)
	c := ready(t, serve(t, Config{}, f.entry("x")), "x", true)
	p := random(64 * mib)
	c.want(nbdOK, cmdWrite, 0, 100, 64*mib, p)
	if a := c.want(nbdOK, cmdRead, 0, 100, 64*mib, nil); !bytes.Equal(a.data, p) {
		t.Error("64 MiB come back changed")
	}
}

func TestDisconnectCompletesWhatIsUnderWay(t *testing.T) {
	f := newFake(mib)
	gate := make(chan struct{})
	f.setHook(func(string, int64) error { <-gate; return nil })
	c := ready(t, serve(t, Config{}, f.entry("x")), "x", true)
	for i := range 5 {
		c.send(cmdWrite, 0, uint64(i), 1, []byte{byte(i + 1)})
	}
	c.send(cmdDisc, 0, 0, 0, nil)
	close(gate)
	for range 5 {
		if a := c.receive(cmdWrite, 0, 0); a.errno != nbdOK {
			t.Errorf("error %d", a.errno)
		}
	}
	c.wantEOF()
	if !bytes.Equal(f.data[:5], []byte{1, 2, 3, 4, 5}) {
		t.Errorf("data %v", f.data[:5])
	}
}

func TestWrongRequestMagicEndsTheConnection(t *testing.T) {
	s := serve(t, Config{}, newFake(mib).entry("x"))
	other := ready(t, s, "x", true)
	c := ready(t, s, "x", true)
	c.write(make([]byte, requestBytes))
	c.wantEOF()
	other.want(nbdOK, cmdRead, 0, 0, 1, nil)
}

// TestOutOfOrder: a request that waits does not hold up those behind it.
func TestOutOfOrder(t *testing.T) {
	f := newFake(mib)
	gate := make(chan struct{})
	f.setHook(func(_ string, off int64) error {
		if off == 0 {
			<-gate
		}
		return nil
	})
	c := ready(t, serve(t, Config{}, f.entry("x")), "x", true)
	slow := c.send(cmdRead, 0, 0, 10, nil)
	quick := c.send(cmdRead, 0, 100, 10, nil)
	if a := c.receive(cmdRead, 100, 10); a.cookie != quick {
		t.Errorf("first reply is for %d", a.cookie)
	}
	close(gate)
	if a := c.receive(cmdRead, 0, 10); a.cookie != slow {
		t.Errorf("second reply is for %d", a.cookie)
	}
}

// TestPipelined sends many requests before it reads a reply, so that replies gather.
func TestPipelined(t *testing.T) {
	eachShape(t, mib, func(t *testing.T, c *client, _ *fake) {
		const n = 300
		var all []byte
		for i := range uint64(n) {
			h := header{cmd: cmdRead, cookie: i, offset: i * 8, length: 8}
			if i%3 == 1 {
				h = header{cmd: cmdWrite, cookie: i, offset: i * 8, length: 8}
			}
			if i%3 == 2 {
				h = header{cmd: 99, cookie: i}
			}
			all = append(all, c.message(h, make([]byte, 8*(i%3%2)))...)
		}
		c.write(all)
		seen := map[uint64]bool{}
		for range n {
			c.receiveAny(func(cookie uint64) (uint16, uint64, uint32) {
				seen[cookie] = true
				if cookie%3 == 0 {
					return cmdRead, cookie * 8, 8
				}
				return cmdWrite, 0, 0
			})
		}
		if len(seen) != n {
			t.Errorf("%d different replies of %d", len(seen), n)
		}
	})
}
