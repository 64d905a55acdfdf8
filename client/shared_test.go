package client

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/meta/store"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// joinVolume opens a volume for writing, with others.
func joinVolume(t testing.TB, fs *FS, name string) *File {
	t.Helper()
	f, _, err := fs.OpenVolumeWith(context.Background(), name, VolumeOptions{Shared: true})
	must(t, err)
	return f
}

func durably(t testing.TB, f *File, p []byte, off int64) {
	t.Helper()
	if n, err := f.WriteAtDurable(context.Background(), p, off); n != len(p) || err != nil {
		t.Fatalf("%d of %d bytes are written: %v", n, len(p), err)
	}
}

// slow is a network between a client and a server that holds back what the client sends, from some
// byte on.
type slow struct {
	addr string
	mu   sync.Mutex
	left int // bytes that still pass; below 0: all
	both []net.Conn
	held chan struct{}
	open chan struct{}
}

// slowly is such a network. It holds nothing back before it is told to.
func slowly(t testing.TB, to string) *slow {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := &slow{addr: l.Addr().String(), left: -1, held: make(chan struct{}),
		open: make(chan struct{})}
	var over sync.WaitGroup
	over.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			s.mu.Lock()
			s.both = append(s.both, near, far)
			s.mu.Unlock()
			over.Go(func() { s.pass(far, near, s.let); far.Close() })
			over.Go(func() { s.pass(near, far, func(n int) int { return n }); near.Close() })
		}
	})
	t.Cleanup(func() {
		l.Close()
		s.release()
		over.Wait()
	})
	return s
}

// pass carries bytes, as many at a time as let allows.
func (s *slow) pass(to, from net.Conn, let func(n int) int) {
	for b := make([]byte, 32<<10); ; {
		n, err := from.Read(b)
		for p := b[:n]; len(p) > 0; {
			k := let(len(p))
			if _, err := to.Write(p[:k]); err != nil {
				return
			}
			p = p[k:]
		}
		if err != nil {
			return
		}
	}
}

// let tells how many of n bytes may pass, and waits while there are none.
func (s *slow) let(n int) int {
	s.mu.Lock()
	if s.left < 0 {
		s.mu.Unlock()
		return n
	}
	if s.left > 0 {
		n = min(n, s.left)
		s.left -= n
		s.mu.Unlock()
		return n
	}
	s.mu.Unlock()
	close(s.held)
	<-s.open
	return n
}

// hold holds back what comes behind some bytes.
func (s *slow) hold(behind int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = behind
}

func (s *slow) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left >= 0 {
		s.left = -1
	}
	select {
	case <-s.open:
	default:
		close(s.open)
	}
}

// cut ends all connections, as the death of a server does.
func (s *slow) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.both {
		c.Close()
	}
}

// words is a write that a process has sent before it died: nobody sends it again, renews its
// capability, or reads its answer.
type words struct {
	target iod.Target
	body   []byte
	data   []byte
}

// lastWords are what a client would send to write p at the beginning of its file.
func lastWords(f *File, p []byte, how How) words {
	w := words{target: f.target(f.grant.Load(), f.node.sequence(), 0), data: p}
	w.target.How = how
	w.target.How.NoSums = true
	var e wire.Enc
	iod.AppendRequest(&e, iod.OpWrite, &w.target, &iod.Args{Access: seg.Contig(0, int64(len(p))),
		Durability: stripe.Durable})
	w.body = e.B
	return w
}

func (w *words) say(conn *msg.Conn) error {
	var rep msg.Reply
	return conn.Call(context.Background(), &msg.Request{Op: uint16(iod.OpWrite),
		Stamp: w.target.Stamp, Body: w.body, Out: &msg.Memory{
			Windows: []fabric.Sge{{Buf: w.data}}, Access: seg.Contig(0, int64(len(w.data)))}}, &rep)
}

func (w *wired) conn(addr string) *msg.Conn {
	w.t.Helper()
	c, err := w.net.Node.Dial(context.Background(), addr)
	must(w.t, err)
	w.t.Cleanup(func() { c.Close() })
	return c
}

// TestSharedSuccessor: a process that shares a volume dies with a write under way: its request is
// in the network, or its data is, while the server pulls it. Another process succeeds it and writes
// to the same place. Then the old one arrives: it is refused, by a server that was started again in
// between, too, and by one that was away when the successor came, who had to wait for it. A third
// client goes on all the time.
func TestSharedSuccessor(t *testing.T) {
	const size = 64 << 10
	for _, c := range []struct {
		name  string
		how   How
		size  int // of the write
		after int // bytes of it that arrive before
	}{
		{"request", How{}, 4096, 40},
		{"data", How{}, size, 16 << 10},
		{"data past the cache", How{Mode: Direct}, size, 16 << 10},
	} {
		for _, server := range []string{"stays", "starts again", "is away"} {
			t.Run(c.name+", the server "+server, func(t *testing.T) {
				succeed(t, c.how, c.size, c.after, server)
			})
		}
	}
}

func succeed(t *testing.T, how How, size, after int, server string) {
	const unit = 64 << 10
	ctx := context.Background()
	w := newWired(t, 2)
	dead, next := w.dial(""), w.dial("")
	v, err := dead.CreateVolume(ctx, "disk", 1<<20, unit, 2)
	must(t, err)
	old, far := joinVolume(t, dead, "disk"), joinVolume(t, w.dial(""), "disk")
	durably(t, old, pattern(2*unit, 1), 0)
	at := v.Layout.Servers[0]
	net := slowly(t, w.addrs[at])
	conn := w.conn(net.addr)
	last := lastWords(old, pattern(size, 2), how)
	refused := make(chan error, 1)
	net.hold(after)
	go func() { refused <- last.say(conn) }()
	<-net.held

	if server == "is away" {
		net.cut()
		w.stop[at]()
	}
	came := make(chan *File, 1)
	go func() {
		f, _, err := next.OpenVolumeWith(ctx, "disk", VolumeOptions{Shared: true})
		if err != nil {
			t.Errorf("the successor: %v", err)
		}
		came <- f
	}()
	was := far.Epoch()
	for far.Epoch() == was { // until it has heard of the successor
		over := len(came) > 0
		durably(t, far, pattern(100, 3), unit)
		if over && far.Epoch() == was {
			t.Fatal("the successor has begun no generation")
		}
	}
	if server == "is away" {
		select {
		case <-came:
			t.Error("the successor did not wait for a server that has not heard of it")
		default:
		}
		w.start[at]()
	}
	f := <-came
	if f == nil {
		return
	}
	want := pattern(2*unit, 4)
	durably(t, f, want, 0)
	if server == "starts again" {
		net.cut()
		w.stop[at]()
		w.start[at]()
	}
	net.release()
	if err := <-refused; err == nil || server == "stays" && errs.KindOf(err) != errs.Fenced {
		t.Errorf("what the dead process had under way: %v", err)
	}
	if err := last.say(w.conn(w.addrs[at])); errs.KindOf(err) != errs.Fenced {
		t.Errorf("sent once more: %v", err)
	}
	agree(t, want, f, far)
}

// agree checks that clients find the same, and that each of them may write.
func agree(t *testing.T, want []byte, files ...*File) {
	t.Helper()
	ctx := context.Background()
	for i, f := range files {
		got := make([]byte, len(want))
		if _, err := f.ReadAt(ctx, got, 0); err != nil || !bytes.Equal(got, want) {
			t.Errorf("client %d of those who are left does not find what was written: %v", i, err)
		}
		durably(t, f, want, 0)
		must(t, f.Close(ctx))
	}
}

// TestSharersGoOn: while clients come and go, and lose their sessions, those who share a volume
// with them write, trim and read without an error, and each finds what it wrote.
func TestSharersGoOn(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := newCluster(t, 3, store.Options{})
	ctx := context.Background()
	const place, sharers = 8 * unit, 3
	first := c.client(Options{})
	_, err := first.CreateVolume(ctx, "disk", (sharers+1)*place, unit, 3)
	must(t, err)
	var all sync.WaitGroup
	stop := make(chan struct{})
	wrote := make([]int, sharers)
	epochs := make([]uint32, sharers)
	for i := range sharers {
		fs := c.client(Options{})
		f := joinVolume(t, fs, "disk")
		epochs[i] = f.Epoch()
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		all.Go(func() {
			defer func() { must(t, f.Close(ctx)) }()
			for ; ; wrote[i]++ {
				select {
				case <-stop:
					epochs[i] = f.Epoch() - epochs[i]
					return
				default:
				}
				if wrote[i]%64 == 32 {
					_ = fs.replaceSession(ctx, fs.sess.Load())
				}
				if err := visit(ctx, f, rng, int64(i)*place, place); err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
			}
		})
	}
	for range 60 {
		f := joinVolume(t, first, "disk")
		durably(t, f, pattern(100, 9), sharers*place)
		must(t, f.Close(ctx))
	}
	close(stop)
	all.Wait()
	now, err := first.Volume(ctx, "disk")
	must(t, err)
	t.Logf("writes %v, generations %v, the last is %d", wrote, epochs, now.Epoch)
	for i := range epochs {
		if epochs[i] == 0 || wrote[i] == 0 {
			t.Errorf("client %d has followed nobody", i)
		}
	}
}

// visit changes a range and looks at it.
func visit(ctx context.Context, f *File, rng *rand.Rand, off, n int64) error {
	from := rng.Int64N(n)
	part := 1 + rng.Int64N(n-from)
	want := pattern(int(part), byte(rng.Uint32()))
	if rng.IntN(4) == 0 {
		clear(want)
		if err := f.Punch(ctx, off+from, part); err != nil {
			return err
		}
	} else if _, err := f.WriteAtDurable(ctx, want, off+from); err != nil {
		return err
	}
	got := make([]byte, part)
	if _, err := f.ReadAt(ctx, got, off+from); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%d bytes at %d are not what was written there", part, off+from)
	}
	return nil
}

// TestDeposedSharer: one that was deposed is refused, and does not come back by renewing.
func TestDeposedSharer(t *testing.T) {
	c := newCluster(t, 2, store.Options{})
	ctx := context.Background()
	a, b := c.client(Options{}), c.client(Options{})
	_, err := a.CreateVolume(ctx, "disk", 1<<20, unit, 2)
	must(t, err)
	f, g := joinVolume(t, a, "disk"), joinVolume(t, b, "disk")
	durably(t, f, pattern(100, 1), 0)
	v, err := b.HandOverVolume(ctx, "disk", true)
	if err != nil || v.Shared || v.First <= g.Epoch() {
		t.Fatalf("%v: %+v", err, v)
	}
	again := joinVolume(t, c.client(Options{}), "disk")
	want := pattern(4*unit, 5)
	durably(t, again, want, 0)
	for _, f := range []*File{f, g} {
		for range 2 {
			_, err := f.WriteAtDurable(ctx, make([]byte, 100), 0)
			if errs.KindOf(err) != errs.Fenced {
				t.Errorf("a deposed sharer: %v", err)
			}
		}
		if err := f.Punch(ctx, 0, 100); errs.KindOf(err) != errs.Fenced {
			t.Errorf("a deposed sharer's trim: %v", err)
		}
	}
	got := make([]byte, len(want))
	if _, err := again.ReadAt(ctx, got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("changed by a deposed sharer: %v", err)
	}
	must(t, again.Close(ctx))
}
