package transfer

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/exio"
	"github.com/sluice-storage/sluice/peer"
)

// dialMax is how long one connection may take to be made.
const dialMax = 10 * time.Second

// Client is a connection to a service, for one transfer.
type Client struct {
	*control
	addr      string
	providers *peer.Providers
	memory    *exio.Memory
	host      [32]byte
	key       [keyBytes]byte
	offers    []offer
	data      exio.Handle
	index     int

	// Choices are the drivers that could have been taken, and why they were not.
	Choices []Choice
}

// Dial connects to the service at addr, HOST:PORT. bytes bounds the memory for blocks.
func Dial(ctx context.Context, providers *peer.Providers, addr string, bytes int64) (*Client,
	error) {

	memory, err := exio.NewMemory(providers.Memory, bytes, providers.Domains...)
	if err != nil {
		return nil, err
	}
	c := &Client{addr: addr, providers: providers, memory: memory, host: peer.HostID()}
	if err := c.open(ctx); err != nil {
		return nil, errors.Join(err, memory.Close())
	}
	return c, nil
}

func (c *Client) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialMax)
	defer cancel()
	base := c.providers.Base()
	h, err := exio.Link{Domain: base, Memory: c.memory}.Dial(ctx, c.addr, [32]byte{})
	if err != nil {
		return err
	}
	c.control = newControl(h)
	err = c.send(ctx, message{kind: msgHello, host: c.host})
	var m message
	if err == nil {
		m, err = c.expect(ctx, msgOffers)
	}
	if err != nil {
		c.control.close()
		return err
	}
	c.key, c.offers = m.key, m.offers
	near := m.host == c.host
	order := append(peer.Names(), Socket)
	slices.SortStableFunc(c.offers, func(a, b offer) int {
		return slices.Index(order, a.driver) - slices.Index(order, b.driver)
	})
	for i := range c.offers { // the address that was dialled is known to work
		if o := &c.offers[i]; o.driver == base.Caps().Provider {
			o.addr = c.addr
		}
	}
	// A service of another host has no business with sockets of this one.
	c.offers = slices.DeleteFunc(c.offers, func(o offer) bool {
		return !near && (o.driver == Socket || o.driver == peer.SHM)
	})
	c.offers = slices.CompactFunc(c.offers, func(a, b offer) bool {
		return a.driver == b.driver && a.addr == b.addr
	})
	return nil
}

// Close ends the connection.
func (c *Client) Close() error {
	if c.data != nil {
		_ = c.data.Close() // it has served its purpose, or has failed
	}
	c.control.close()
	return c.memory.Close()
}

// connect makes a connection for data.
func (c *Client) connect(ctx context.Context, o offer, index int) (exio.Handle, error) {
	ctx, cancel := context.WithTimeout(ctx, dialMax)
	defer cancel()
	var h exio.Handle
	var err error
	if o.driver == Socket {
		var nc net.Conn
		if nc, err = (&net.Dialer{}).DialContext(ctx, "tcp", o.addr); err == nil {
			h, err = exio.NewSocket(nc, exio.Options{})
		}
	} else {
		err = errs.Newf(errs.Unsupported, "transfer", o.driver, "this process does not have it")
		for _, d := range c.providers.Domains {
			if d.Caps().Provider == o.driver {
				link := exio.Link{Domain: d, Memory: c.memory, Source: c.providers.Memory}
				h, err = link.Dial(ctx, c.where(o.addr), o.token)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	join := append(slices.Clone(c.key[:]), byte(index))
	if _, err := exio.Wait(ctx, h.Write, exio.Op{Tag: tagJoin, Pieces: [][]byte{join}}); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// where is an address as it is dialled: a service that listens on all devices is at the host that
// was dialled.
func (c *Client) where(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		if host, _, err := net.SplitHostPort(c.addr); err == nil {
			return net.JoinHostPort(host, port)
		}
	}
	return addr
}

// whys are why no driver was taken, for people.
func (c *Client) whys(asked string) string {
	var all []string
	for _, ch := range c.Choices {
		all = append(all, ch.Driver+": "+ch.Why)
	}
	if len(all) == 0 && asked != "" {
		var has []string
		for _, o := range c.offers {
			if !slices.Contains(has, o.driver) {
				has = append(has, o.driver)
			}
		}
		return ": the other side does not offer " + asked + ", but " + strings.Join(has, ", ")
	}
	return ": " + strings.Join(all, "; ")
}

// Request is what is asked of a service.
type Request struct {
	Name    string
	Memory  bool   // nothing in particular, for measuring: Size bytes
	Size    int64  // of memory
	Driver  string // which one is to be used; empty: the best
	Options Options
	Tell    func(bytes int64) // of progress; may be nil
}

// Put sends an original, or memory if it is nil, which stays the caller's.
func (c *Client) Put(ctx context.Context, r Request, from Original, how Creation) (Result, error) {
	o := r.Options.WithDefaults()
	size := r.Size
	if from != nil {
		size = from.Size()
	}
	how.Size = size
	if err := o.Check(size); err != nil {
		return Result{}, err
	}
	if err := c.choose(ctx, r.Driver, o, size); err != nil {
		return Result{}, err
	}
	buffers, err := newBuffers(c.memory, o)
	if err != nil {
		return Result{}, err
	}
	defer freeBuffers(c.memory, buffers)
	err = c.send(ctx, message{kind: msgPut, handle: c.index, name: r.Name, memory: r.Memory,
		put: how, size: size, moving: o})
	if err == nil {
		err = c.opened(ctx, o, nil)
	}
	if err != nil {
		return Result{}, err
	}
	var h exio.Handle
	if from != nil {
		h = exio.NewFile(kept{from}, exio.FileOptions{Name: r.Name, Depth: min(o.Depth, 16)})
	}
	result, err := newMoving(c.control, c.data, o, size, buffers, r.Tell).source(ctx, h)
	return result, errors.Join(err, closeFile(h))
}

// kept is an original that its handle does not close.
type kept struct{ Original }

func (kept) WriteAt([]byte, int64) (int, error) { return 0, errs.ReadOnly }
func (kept) Close() error                       { return nil }

// opened waits until the service has what it needs, which may take it a while.
func (c *Client) opened(ctx context.Context, o Options, m *message) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, errs.Newf(errs.TimedOut, "transfer",
		c.addr, "no answer within %v", o.Timeout))
	defer cancel()
	got, err := c.expect(ctx, msgOpened)
	if m != nil {
		*m = got
	}
	return err
}

// length is how much a Get will bring: what is measured for depends on it.
func (c *Client) length(ctx context.Context, r Request, o Options) (int64, error) {
	if r.Memory {
		return r.Size, nil
	}
	var m message
	err := c.send(ctx, message{kind: msgGet, handle: noHandle, name: r.Name, moving: o})
	if err == nil {
		err = c.opened(ctx, o, &m)
	}
	return m.size, err
}

// Get fetches a file, or memory, into a copy that create makes when the size is known; nil: it goes
// nowhere.
func (c *Client) Get(ctx context.Context, r Request,
	create func(size int64, mode os.FileMode) (Copy, error)) (result Result, err error) {

	o := r.Options.WithDefaults()
	if err := o.Check(r.Size); err != nil {
		return result, err
	}
	size, err := c.length(ctx, r, o)
	if err == nil {
		err = c.choose(ctx, r.Driver, o, size)
	}
	if err != nil {
		return result, err
	}
	buffers, err := newBuffers(c.memory, o)
	if err != nil {
		return result, err
	}
	defer freeBuffers(c.memory, buffers)
	var m message
	err = c.send(ctx, message{kind: msgGet, handle: c.index, name: r.Name, memory: r.Memory,
		size: r.Size, moving: o})
	if err == nil {
		err = c.opened(ctx, o, &m)
	}
	if err == nil {
		err = o.Check(m.size)
	}
	if err != nil {
		return result, err
	}
	var to Copy
	if create != nil {
		if to, err = create(m.size, os.FileMode(m.mode).Perm()); err != nil {
			c.fail(err)
			return result, err
		}
		defer func() { err = errors.Join(err, to.Close()) }()
	}
	return newMoving(c.control, c.data, o, m.size, buffers, r.Tell).sink(ctx, to)
}
