package nbd

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// streaming delivers reads in pieces, in any order, from several goroutines; it counts what is lent
// and overwrites what comes back.
type streaming struct {
	*fake
	piece   int64
	lent    atomic.Int64
	streams atomic.Int64
	hold    chan struct{}                  // if not nil, all but the first piece wait for it
	spoil   func(i int, p *Piece, to Sink) // may change what is delivered
	fail    error                          // returned behind the pieces
}

type lentPiece struct {
	from *streaming
	data []byte
}

func (l *lentPiece) Return() {
	for i := range l.data {
		l.data[i] = 0xdb // whoever sends it now sends nonsense
	}
	l.from.lent.Add(-1)
}

func (s *streaming) Stream(ctx context.Context, off, length int64, to Sink) error {
	s.streams.Add(1)
	if err := s.hook("stream", off); err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	count := int((length + s.piece - 1) / s.piece)
	s.mu.RLock()
	hold, spoil, fail := s.hold, s.spoil, s.fail
	s.mu.RUnlock()
	for i, k := range rand.Perm(count) {
		at := off + int64(k)*s.piece
		n := min(s.piece, off+length-at)
		if i > 0 && hold != nil {
			<-hold
		}
		s.mu.RLock()
		data := bytes.Clone(s.data[at : at+n])
		s.mu.RUnlock()
		half := n / 2
		p := Piece{Off: at, Len: n, Data: [][]byte{data[:half], data[half:]}}
		p.Lent = &lentPiece{s, data}
		s.lent.Add(1)
		if spoil != nil {
			spoil(i, &p, to)
		}
		if i%3 == 0 {
			wg.Go(func() { _ = to.Deliver(p) })
		} else if err := to.Deliver(p); err != nil {
			return err
		}
	}
	wg.Wait()
	return fail
}

// next says what becomes of the reads that follow.
func (s *streaming) next(spoil func(i int, p *Piece, to Sink), fail error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spoil, s.fail = spoil, fail
}

func newStreaming(size int, piece int64) *streaming {
	s := &streaming{fake: newFake(size), piece: piece}
	copy(s.data, random(size))
	return s
}

func (s *streaming) settled(t *testing.T) {
	t.Helper()
	eventually(t, "everything lent is back", func() bool { return s.lent.Load() == 0 })
}

// TestStreamedReads: pieces in any order make the read that was asked for, and clients that cannot
// take pieces get the same in one.
func TestStreamedReads(t *testing.T) {
	for _, piece := range []int64{4096, 100_000, 128 << 10, 8 * mib} {
		s := newStreaming(8*mib, piece)
		srv := serve(t, Config{}, entryOf("x", s, s.fake))
		plain, c := ready(t, srv, "x", false), ready(t, srv, "x", true)
		for _, n := range []int{4096, StreamBytes - 1, StreamBytes, mib, 3*mib + 7} {
			before := s.streams.Load()
			for i, a := range []answer{
				c.want(nbdOK, cmdRead, 0, 511, uint32(n), nil),
				c.want(nbdOK, cmdRead, cmdFlagDF, 511, uint32(n), nil),
				plain.want(nbdOK, cmdRead, 0, 511, uint32(n), nil),
			} {
				if !bytes.Equal(a.data, s.data[511:511+n]) {
					t.Fatalf("pieces of %d, client %d: %d bytes come changed", piece, i, n)
				}
				if i == 1 && len(a.kinds) != 1 {
					t.Errorf("a read that must stay whole came in %d chunks", len(a.kinds))
				}
			}
			if got, want := s.streams.Load()-before, int64(0); n >= StreamBytes {
				want = 1
				if got != want {
					t.Errorf("%d bytes: %d streams", n, got)
				}
			} else if got != want {
				t.Errorf("%d bytes: %d streams", n, got)
			}
		}
		s.settled(t)
	}
}

// TestPiecesLeaveAtOnce: the client has the first piece while the others are not there yet.
func TestPiecesLeaveAtOnce(t *testing.T) {
	s := newStreaming(mib, 128<<10)
	s.hold = make(chan struct{})
	c := ready(t, serve(t, Config{}, entryOf("x", s, s.fake)), "x", true)
	c.send(cmdRead, 0, 0, mib, nil)
	h := c.read(16)
	a := answer{data: make([]byte, mib)}
	if c.chunk(&a, h, 0) {
		t.Fatal("the first piece ends the reply")
	}
	close(s.hold)
	for done := false; !done; {
		done = c.chunk(&a, c.read(16), 0)
	}
	if !bytes.Equal(a.data, s.data) || len(a.kinds) != 8 {
		t.Errorf("%d chunks, or other bytes", len(a.kinds))
	}
	s.settled(t)
}

// TestErrorBehindPieces: what was delivered is sent, then the error with its place; the connection
// goes on.
func TestErrorBehindPieces(t *testing.T) {
	s := newStreaming(mib, 128<<10)
	srv := serve(t, Config{}, entryOf("x", s, s.fake))
	c := ready(t, srv, "x", true)
	// A client has its reply a moment before the export's call has returned.
	returned := func() bool { return srv.find("x").open.slots.Usage().Count == 0 }
	for _, q := range []struct {
		spoil func(i int, p *Piece, to Sink)
		fail  error
		errno uint32
		at    uint64
	}{
		{nil, nil, nbdOK, 0},
		{func(i int, p *Piece, _ Sink) { // a piece that nobody delivers
			if i == 3 {
				p.Len, p.Data = 1, [][]byte{p.Data[0][:1]}
			}
		}, &OffsetError{Off: 777, Err: errs.New(errs.IO, "disk", "", nil)}, nbdIO, 777},
		{func(i int, p *Piece, _ Sink) {
			if i == 3 {
				p.Len, p.Data = 1, [][]byte{p.Data[0][:1]}
			}
		}, nil, nbdIO, 0}, // and does not say so
		{func(i int, p *Piece, _ Sink) { p.Off += mib }, nil, nbdIO, 0},
		{func(i int, p *Piece, _ Sink) { p.Len-- }, nil, nbdIO, 0},
	} {
		s.next(q.spoil, q.fail)
		a := c.do(cmdRead, 0, 0, mib, nil)
		if a.errno != q.errno || a.errorOff != q.at {
			t.Errorf("error %d at %d, want %d at %d", a.errno, a.errorOff, q.errno, q.at)
		}
		s.settled(t)
		eventually(t, "returned", returned)
	}
	s.next(nil, nil)
	if a := c.want(nbdOK, cmdRead, 0, 0, mib, nil); !bytes.Equal(a.data, s.data) {
		t.Error("other bytes")
	}
	eventually(t, "returned", returned)
	s.setHook(func(string, int64) error { return errs.New(errs.NoSpace, "x", "", nil) })
	c.want(nbdNOSPC, cmdRead, 0, 0, mib, nil) // before the first piece
	eventually(t, "returned", returned)
	s.setHook(nil)
	s.next(func(i int, p *Piece, to Sink) { _ = to.Deliver(Piece{Off: p.Off, Len: p.Len}) }, nil)
	c.send(cmdRead, 0, 0, mib, nil) // twice as much as it asks for
	if _, err := io.Copy(io.Discard, c.nc); os.IsTimeout(err) {
		t.Error("the connection goes on")
	}
}

// TestStreamsOfDeadClients: pieces come back whatever becomes of the client, and the export learns
// of it.
func TestStreamsOfDeadClients(t *testing.T) {
	s := newStreaming(32*mib, 64<<10)
	srv := serve(t, Config{}, entryOf("x", s, s.fake))
	for range 10 {
		c := ready(t, srv, "x", true)
		for range 4 {
			c.send(cmdRead, 0, 0, 16*mib, nil)
		}
		c.read(16 + rand.IntN(mib))
		c.nc.Close()
	}
	s.settled(t)
	eventually(t, "all connections end", func() bool { return srv.Stats().Conns == 0 })
	s.next(func(i int, _ *Piece, _ Sink) {
		if i == 2 {
			panic("planted")
		}
	}, nil)
	c := ready(t, srv, "x", true)
	c.send(cmdRead, 0, 0, mib, nil)
	eventually(t, "a panic ends the connection", func() bool { return srv.Stats().Conns == 0 })
	s.next(nil, nil)
	ready(t, srv, "x", true).want(nbdOK, cmdRead, 0, 0, mib, nil)
}

// TestHolesInStreams: a piece without bytes is a hole.
func TestHolesInStreams(t *testing.T) {
	s := newStreaming(mib, 64<<10)
	clear(s.data[:mib/2])
	s.next(func(_ int, p *Piece, _ Sink) {
		if p.Off < mib/2 {
			p.Data = nil
		}
	}, nil)
	c := ready(t, serve(t, Config{}, entryOf("x", s, s.fake)), "x", true)
	a := c.want(nbdOK, cmdRead, 0, 0, mib, nil)
	holes := 0
	for _, k := range a.kinds {
		if k == chunkOffsetHole {
			holes++
		}
	}
	if holes != 8 || !bytes.Equal(a.data, s.data) {
		t.Errorf("%d holes in %v, or other bytes", holes, a.kinds)
	}
	s.settled(t)
}

// TestPiecesOfFiles: bytes of a file are sent from where they lie, by the kernel where the
// connection is a socket. What is missing is padded, and then told.
func TestPiecesOfFiles(t *testing.T) {
	s := newStreaming(2*mib, 256<<10)
	path := filepath.Join(t.TempDir(), "bytes")
	if err := os.WriteFile(path, s.data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s.next(func(i int, p *Piece, _ Sink) {
		if i%4 != 3 {
			p.Data, p.File, p.At = nil, f, p.Off
		}
	}, nil)
	srv := serve(t, Config{}, entryOf("x", s, s.fake))
	socket := ready(t, srv, "x", true)
	pipe := structuredOverPipe(t, srv, "x")
	for _, c := range []*client{socket, pipe} {
		if a := c.want(nbdOK, cmdRead, 0, 4096, mib, nil); !bytes.Equal(a.data, s.data[4096:][:mib]) {
			t.Error("other bytes")
		}
	}
	if err := os.Truncate(path, mib+5); err != nil {
		t.Fatal(err)
	}
	s.next(func(_ int, p *Piece, _ Sink) { p.Data, p.File, p.At = nil, f, p.Off }, nil)
	for _, c := range []*client{socket, pipe} {
		a := c.want(nbdIO, cmdRead, 0, 0, 2*mib, nil)
		if !a.located || a.errorOff < mib+5 {
			t.Errorf("error at %d", a.errorOff)
		}
		if !bytes.Equal(a.data[:mib+5], s.data[:mib+5]) {
			t.Error("what is there was not sent")
		}
		c.want(nbdOK, cmdRead, 0, 0, mib, nil)
	}
	s.settled(t)
	socket.send(cmdRead, 0, 0, mib, nil)
	socket.nc.Close() // while it is sent
	s.settled(t)
}

func structuredOverPipe(tb testing.TB, s *Server, name string) *client {
	tb.Helper()
	near, far := net.Pipe()
	c := attach(tb, s, near, far)
	c.greet(flagFixedNewstyle | flagNoZeroes)
	c.mustAck(optStructuredReply, nil)
	c.structured = true
	c.mustAck(optGo, infoData(name))
	return c
}

// hungry is an export whose readers wait for memory.
type hungry struct {
	*streaming
	starving atomic.Bool
}

func (h *hungry) Starving() bool { return h.starving.Load() }

// TestStalledStreamsAreCut: a client that takes nothing holds what the export has lent until others
// need it.
func TestStalledStreamsAreCut(t *testing.T) {
	h := &hungry{streaming: newStreaming(32*mib, mib)}
	srv := serve(t, Config{StallTimeout: time.Second}, entryOf("x", h, h.fake))
	c := ready(t, srv, "x", true)
	c.send(cmdRead, 0, 0, 32*mib, nil)
	eventually(t, "it waits for the client", func() bool { return h.lent.Load() > 0 })
	for now := range int64(10) {
		srv.watchOnce(100 + now)
	}
	if srv.Stats().Evicted != 0 {
		t.Fatal("cut although nobody waits")
	}
	h.starving.Store(true)
	eventually(t, "it is cut", func() bool {
		srv.watchOnce(srv.clock.Add(10))
		return srv.Stats().Evicted > 0
	})
	h.settled(t)
}
