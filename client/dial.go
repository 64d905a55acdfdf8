package client

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	iodremote "github.com/sluice-storage/sluice/iod/remote"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/meta"
	metaremote "github.com/sluice-storage/sluice/meta/remote"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
)

// metaPeer is the pool's number for the metadata service; I/O servers have their ids, which are
// never 0.
const metaPeer = 0

// Open connects to the file system at a URL, sluice://host:port[/path], by the best way that this
// host has to each of its servers. It is Dial with the defaults of all Options.
func Open(ctx context.Context, url string) (*FS, error) { return Dial(ctx, url, Options{}) }

// Dial connects to the file system at a URL, sluice://host:port[/path]. The path, a directory,
// becomes the root of the FS. ctx bounds dialing only.
func Dial(ctx context.Context, url string, opts Options) (*FS, error) {
	addr, path, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	n, err := connect(addr, &opts)
	if err != nil {
		return nil, err
	}
	fs, err := newFS(ctx, n.meta, n.data, opts)
	if err != nil {
		_ = n.close()
		return nil, errs.Wrap("client.Dial", url, err)
	}
	fs.down, fs.buffers, fs.peers = n.close, n.buffers, n.peers
	fs.places.Store(n.places)
	n.fs.Store(fs)
	if err := fs.enterRoot(ctx, path); err != nil {
		_ = fs.Close()
		return nil, errs.Wrap("client.Dial", url, err)
	}
	return fs, nil
}

// parseURL takes a URL apart. Package net/url would accept much that means nothing here.
func parseURL(url string) (addr, path string, err error) {
	rest, ok := strings.CutPrefix(url, "sluice://")
	addr, path, _ = strings.Cut(rest, "/")
	if ok {
		_, _, err = net.SplitHostPort(addr)
	}
	if !ok || err != nil {
		return "", "", errs.Newf(errs.Invalid, "client.Dial", url, "want sluice://host:port[/path]")
	}
	return addr, path, nil
}

// network is what Dial opens.
type network struct {
	opened  *peer.Providers // nil: they are the caller's
	unkeep  func()          // ends what keeps the credential
	peers   *peer.Network
	pool    *peer.Pool
	meta    *metaremote.Service
	data    *iodremote.Remote
	places  *metaremote.Directory
	buffers *buffers           // nil: none
	kept    *mem.Arena         // of data; nil: none yet
	fs      atomic.Pointer[FS] // that all this is for; nil at first
}

// callMax bounds a single call where its context does not: it waits as long as the operation that
// it is a part of, because a repetition would not be quicker.
func callMax(waitMax time.Duration) time.Duration {
	if waitMax < 0 {
		return 365 * 24 * time.Hour
	}
	return waitMax
}

// connect prepares connections to the metadata service and, by what it tells, to the I/O servers.
// They are made when they are needed.
func connect(addr string, o *Options) (*network, error) {
	n := &network{}
	providers := o.Providers
	var err error
	if providers == nil {
		if o.Peer.Logger == nil {
			o.Peer.Logger = o.Logger
		}
		if n.unkeep, err = o.identify(addr); err != nil {
			return nil, err
		}
		if n.opened, err = peer.Open(o.Peer); err != nil {
			n.unkeep()
			return nil, err
		}
		providers = n.opened
	}
	n.peers, err = peer.New(providers,
		msg.Options{Logger: o.Logger, CallTimeout: callMax(o.WaitMax)})
	if err != nil {
		_ = n.closeOpened() // nothing runs on them
		return nil, err
	}
	n.pool = peer.NewPool(n.peers, func(ctx context.Context, id uint32) (string, error) {
		if id == metaPeer {
			return addr, nil
		}
		return n.places.Resolve(ctx, id)
	})
	if n.buffers, err = newBuffers(providers, n.peers.Node, o); err != nil {
		_ = n.peers.Close()
		_ = n.closeOpened()
		return nil, err
	}
	data := iodremote.Options{WaitMax: o.WaitMax, RetainBytes: o.Retain, SumNear: o.SumNear,
		Logger: o.Logger, Arena: n.arena(providers.Memory),
		Renew: func(ctx context.Context, t *iod.Target) error { return n.fs.Load().renewTarget(ctx, t) },
		Lost:  func(t iod.Target, err error) { n.fs.Load().lost(t, err) }}
	if n.buffers != nil {
		data.Buffers, data.Registrations = n.buffers.lender, n.buffers.registrations
	}
	n.data = iodremote.New(n.pool, data)
	n.meta, err = metaremote.New(metaremote.Options{Pool: n.pool, Peer: metaPeer, Node: n.peers.Node,
		WaitMax: o.WaitMax, OnMap: func(v uint64) { n.places.Heard(v) }})
	n.places = metaremote.NewDirectory(n.meta, n.pool.Moved)
	if err != nil {
		_ = n.close()
		return nil, err
	}
	return n, nil
}

func (n *network) close() error {
	n.places.Close()
	err := n.data.Close()
	if perr := n.pool.Close(); err == nil {
		err = perr
	}
	if nerr := n.peers.Close(); err == nil {
		err = nerr
	}
	if n.kept != nil { // the node is closed: no server touches it
		if kerr := n.kept.Close(); err == nil {
			err = kerr
		}
	}
	if n.buffers != nil {
		if berr := n.buffers.close(); err == nil {
			err = berr
		}
	}
	if oerr := n.closeOpened(); err == nil {
		err = oerr
	}
	return err
}

// closeOpened ends the providers that connect has opened.
func (n *network) closeOpened() error {
	if n.opened == nil {
		return nil
	}
	n.unkeep()
	return n.opened.Close()
}

// enterRoot makes a directory the place where paths begin.
func (fs *FS) enterRoot(ctx context.Context, path string) error {
	if path == "" {
		return nil
	}
	p, err := fs.existing(ctx, fs.self(), path, true)
	if err != nil {
		return err
	}
	if p.attr.Type != meta.Directory {
		return errs.New(errs.NotDir, "", path, nil)
	}
	fs.root = p.attr.Ino
	return nil
}
