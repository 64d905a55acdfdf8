package nbd

import (
	"bytes"
	"sync/atomic"
	"testing"

	"github.com/sluice-storage/sluice/errs"
)

// lender lends at most so many buffers at once and counts them.
type lender struct {
	most      int64
	out, lent atomic.Int64
}

type lentBuffer struct {
	from *lender
	buf  []byte
}

func (b *lentBuffer) Bytes() []byte { return b.buf }

func (b *lentBuffer) Return() {
	for i := range b.buf {
		b.buf[i] = 0xdb // whoever reads it now reads nonsense
	}
	b.from.out.Add(-1)
}

func (l *lender) lend(bytes int) Buffer {
	if l.out.Add(1) > l.most {
		l.out.Add(-1)
		return nil
	}
	l.lent.Add(1)
	return &lentBuffer{l, make([]byte, bytes+100)}
}

// TestLentBuffers: large payloads travel in memory that somebody lends, small ones and those that
// it has no memory for in the server's own; all of it comes back, whatever became of the request.
func TestLentBuffers(t *testing.T) {
	for name, build := range shapes(mib) {
		t.Run(name, func(t *testing.T) {
			exp, f := build()
			f.setHook(func(op string, off int64) error {
				if off == mib/2 {
					return errs.New(errs.IO, op, "", nil)
				}
				return nil
			})
			l := &lender{most: 1}
			s := serve(t, Config{Buffers: l.lend}, entryOf("x", exp, f))
			c := ready(t, s, "x", true)
			data := bytes.Repeat([]byte{1, 2, 3, 5, 7, 11, 13, 17}, 32<<10/8)
			for i := range uint64(8) {
				c.want(nbdOK, cmdWrite, 0, i*uint64(len(data)), uint32(len(data)), data)
			}
			first := c.cookie + 1
			for i := range uint64(8) { // several at once: only one of them gets a lent one
				c.send(cmdRead, 0, i*uint64(len(data)), uint32(len(data)), nil)
			}
			for range 8 {
				a := c.receiveAny(func(cookie uint64) (uint16, uint64, uint32) {
					return cmdRead, (cookie - first) * uint64(len(data)), uint32(len(data))
				})
				if a.errno != nbdOK || !bytes.Equal(a.data, data) {
					t.Fatalf("error %d, or other bytes", a.errno)
				}
			}
			if l.lent.Load() == 0 {
				t.Error("nothing was borrowed")
			}
			c.want(nbdIO, cmdWrite, 0, mib/2, uint32(len(data)), data)
			if a := c.do(cmdRead, 0, 0, uint32(len(data)), nil); !bytes.Equal(a.data, data) {
				t.Error("other bytes came back")
			}
			eventually(t, "everything is back", func() bool {
				return l.out.Load() == 0 && s.Stats().MemoryBytes == 0
			})
			was := l.lent.Load()
			c.want(nbdOK, cmdRead, 0, 0, 4096, nil)
			if l.lent.Load() != was {
				t.Error("a buffer was borrowed for a small request")
			}
			c.send(cmdWrite, 0, 0, uint32(len(data)), data[:10]) // and dies
			c.nc.Close()
			eventually(t, "the last one is back", func() bool { return l.out.Load() == 0 })
		})
	}
}
