package provider

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

func TestHello(t *testing.T) {
	const magic = 0x11223344
	h := fabric.Hello{
		Version: fabric.HelloVersion, Features: 2, MaxMessage: 3, RecvDepth: 4, Identity: 5,
		Token: [32]byte{0: 6, 31: 7},
	}
	encode := func(h fabric.Hello, refusal errs.Kind, change func(b []byte)) []byte {
		b := make([]byte, HelloBytes)
		EncodeHello(b, magic, &h, refusal)
		if change != nil {
			change(b)
		}
		return b
	}
	b := encode(h, errs.Again, nil)
	got, refusal, err := DecodeHello(b, magic)
	if err != nil || got != h || refusal != errs.Again {
		t.Fatalf("%+v %v %v", got, refusal, err)
	}
	_, refusal, err = DecodeHello(encode(h, errs.NoSpace, nil), magic)
	if err != nil || refusal != errs.Disconnected { // a peer does not choose this side's errors
		t.Fatalf("%v %v", refusal, err)
	}
	for name, c := range map[string]struct {
		b    []byte
		want errs.Kind
	}{
		"short":             {b[:HelloBytes-1], errs.Protocol},
		"magic":             {encode(h, 0, func(b []byte) { b[0]++ }), errs.Protocol},
		"version":           {encode(h, 0, func(b []byte) { b[5]++ }), errs.Version},
		"reserved":          {encode(h, 0, func(b []byte) { b[31] = 1 }), errs.Protocol},
		"the first of them": {encode(h, 0, func(b []byte) { b[26] = 1 }), errs.Protocol},
	} {
		_, _, err := DecodeHello(c.b, magic)
		if errs.KindOf(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestVersionsTellTheRemedy: who is refused because of its version reads which side to renew.
func TestVersionsTellTheRemedy(t *testing.T) {
	const older, newer = "this program is the older one", "the peer is the older one"
	hello := func(v uint16) *fabric.Hello { return &fabric.Hello{Version: v} }
	mine := hello(fabric.HelloVersion)
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"a later hello":    {fabric.CheckVersion(fabric.HelloVersion + 1), older},
		"an earlier hello": {fabric.CheckVersion(fabric.HelloVersion - 1), newer},
		"refused by a later listener": {
			CheckAnswer(mine, hello(fabric.HelloVersion+1), errs.Version), older},
		"refused by an earlier listener": {
			CheckAnswer(mine, hello(fabric.HelloVersion-1), errs.Version), newer},
	} {
		if errs.KindOf(c.err) != errs.Version || !strings.Contains(c.err.Error(), c.want) ||
			!strings.Contains(c.err.Error(), "install") {
			t.Errorf("%s: %v", name, c.err)
		}
	}
	fatal(t, fabric.CheckVersion(fabric.HelloVersion))
}

func TestCheckAnswer(t *testing.T) {
	good := fabric.Hello{Version: fabric.HelloVersion}
	old, token, knows := good, good, good
	old.Version++
	token.Token[0] = 1
	knows.Token = fabric.TokenAnswer(token.Token)
	fatal(t, CheckAnswer(&good, &good, errs.OK))
	fatal(t, CheckAnswer(&token, &knows, errs.OK))
	wants(t, CheckAnswer(&token, &good, errs.OK), errs.Perm)
	wants(t, CheckAnswer(&old, &good, errs.OK), errs.Version)
	wants(t, CheckAnswer(&good, &good, errs.Again), errs.Again)
}

// guest is a peer that is admitted by making an endpoint.
type guest struct {
	Met
	r    *rig
	fail error // of Admit

	mu      sync.Mutex
	refused error
	closed  bool
}

func (g *guest) Name() string { return "guest" }

func (g *guest) Admit(mine fabric.EndpointConfig) (fabric.Endpoint, error) {
	if g.fail != nil {
		return nil, g.fail
	}
	return g.r.made(mine), nil
}

func (g *guest) Refuse(why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused = why
}

func (g *guest) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	return nil
}

// port is a listening socket whose peers come by a channel.
type port struct {
	calls chan *guest
	once  sync.Once
}

func (p *port) Close() error {
	p.once.Do(func() { close(p.calls) })
	return nil
}

func (p *port) accept() (*guest, error) {
	if g, ok := <-p.calls; ok {
		return g, nil
	}
	return nil, net.ErrClosed
}

func newListener(t *testing.T, r *rig, full func()) (*Listener[*guest], *port) {
	l, p := &Listener[*guest]{}, &port{calls: make(chan *guest)}
	l.Open(&r.Domain, p)
	fatal(t, Serve(l, p.accept, full, func(g *guest) { l.Go(func() { l.Ready(g) }) }))
	return l, p
}

func TestAccept(t *testing.T) {
	r := newRig(t, 2*testDepth)
	l, p := newListener(t, r, nil)
	broken := errors.New("broken")
	yes := func(fabric.Peer) (fabric.EndpointConfig, error) { return r.config(), nil }
	for name, c := range map[string]struct {
		g       *guest
		cfg     func(fabric.Peer) (fabric.EndpointConfig, error)
		want    errs.Kind
		refused bool
	}{
		"good":         {&guest{}, yes, errs.OK, false},
		"bad hello":    {&guest{Met: Met{Err: errs.New(errs.Perm, "", "", nil)}}, yes, errs.Perm, true},
		"lost in vain": {&guest{fail: broken}, yes, errs.KindOf(broken), false},
		"refused": {&guest{}, func(fabric.Peer) (fabric.EndpointConfig, error) {
			return fabric.EndpointConfig{}, errs.New(errs.Again, "", "", nil)
		}, errs.Again, true},
		"another's end": {&guest{}, func(fabric.Peer) (fabric.EndpointConfig, error) {
			return fabric.EndpointConfig{}, errs.New(errs.Closed, "", "", nil)
		}, errs.Disconnected, true}, // errs.Closed would end the listener
		"another version": {&guest{}, func(fabric.Peer) (fabric.EndpointConfig, error) {
			cfg := r.config()
			cfg.Hello.Version = fabric.HelloVersion + 1
			return cfg, nil
		}, errs.Version, true},
	} {
		t.Run(name, func(t *testing.T) {
			c.g.r = r
			p.calls <- c.g
			e, err := l.Accept(t.Context(), c.cfg)
			wants(t, err, c.want)
			if (c.g.refused != nil) != c.refused {
				t.Fatalf("refused: %v", c.g.refused)
			}
			if e != nil {
				fatal(t, e.Close())
			}
			cfg := r.config()
			fatal(t, r.Reserve(&cfg)) // every place is back
			r.Unreserve(&cfg)
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := l.Accept(ctx, yes)
	wants(t, err, errs.KindOf(ctx.Err()))
	late := &guest{r: r}
	p.calls <- late
	soon(t, func() bool { return len(l.ready) == 1 })
	fatal(t, l.Close())
	if !late.closed {
		t.Fatal("who waited was forgotten")
	}
	_, err = l.Accept(t.Context(), yes)
	wants(t, err, errs.Closed)
}

// TestBacklog: one more than it holds waits, and somebody is asked to make room.
func TestBacklog(t *testing.T) {
	r := newRig(t, 1)
	full := make(chan struct{})
	l, p := newListener(t, r, func() { close(full) })
	for range Backlog + 1 {
		p.calls <- &guest{r: r}
	}
	<-full
	if l.TrySlot() {
		t.Fatal("there are too many slots")
	}
	fatal(t, r.Domain.Close()) // which closes the listener, and nobody is stuck
}

func TestDial(t *testing.T) {
	r := newRig(t, 2*testDepth)
	dial := func(ctx context.Context, f func(context.Context) (fabric.Endpoint, error)) error {
		cfg := r.config()
		_, err := r.Dial(ctx, "there", &cfg, f)
		return err
	}
	wants(t, dial(t.Context(), func(context.Context) (fabric.Endpoint, error) {
		return nil, errs.New(errs.Perm, "", "", nil)
	}), errs.Perm)
	ctx, cancel := context.WithCancel(t.Context())
	hangs := func(ctx context.Context) (fabric.Endpoint, error) {
		cancel()
		<-ctx.Done()
		return nil, errs.New(errs.IO, "", "", nil) // whatever it makes of that
	}
	wants(t, dial(ctx, hangs), errs.KindOf(context.Canceled))
	wants(t, dial(t.Context(), func(ctx context.Context) (fabric.Endpoint, error) {
		go r.Stop()
		<-ctx.Done()
		return nil, ctx.Err()
	}), errs.Closed)
	wants(t, dial(t.Context(), nil), errs.Closed)
	if n := r.q.reserved.Load(); n != 0 {
		t.Fatalf("%d places are gone", n)
	}
}

func TestUntil(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	defer a.Close()
	ctx, cancel := context.WithCancel(t.Context())
	err := Until(ctx, a, func() error {
		cancel()
		_, err := a.Read(make([]byte, 1))
		return err
	})
	wants(t, err, errs.KindOf(context.Canceled))
}

func TestStoppedDomain(t *testing.T) {
	r := newRig(t, 4*testDepth)
	e := r.end()
	fatal(t, e.Post([]fabric.WR{{Op: fabric.OpSend}}))
	var calls sync.WaitGroup
	fatal(t, r.Enter("call", &calls))
	calls.Done()
	if len(r.Endpoints()) != 1 || !r.Go(func() {}) {
		t.Fatal("it is open")
	}
	fatal(t, r.Domain.Close())
	var dst [2]fabric.Completion
	if n := r.q.Poll(dst[:]); n != 1 || dst[0].ErrKind() != errs.Closed {
		t.Fatalf("%d: %+v", n, dst[0])
	}
	if len(r.Endpoints()) != 0 || r.Go(func() {}) {
		t.Fatal("it is closed")
	}
	wants(t, r.Check("op"), errs.Closed)
	wants(t, r.CheckQueue(fabric.CQOptions{Depth: 1}), errs.Closed)
	wants(t, r.Enter("call", &calls), errs.Closed)
	wants(t, r.Adopt(&e.Endpoint, e, 1), errs.Closed)
	l, p := &Listener[*guest]{}, &port{calls: make(chan *guest)}
	l.Open(&r.Domain, p)
	wants(t, l.Adopt(), errs.Closed)
	if _, err := p.accept(); err == nil {
		t.Fatal("the socket is still open")
	}
}
