package main

import (
	"context"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/meta/remote"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
)

const (
	scheme = "sluice:"

	// reachMax is how long a tool looks for the cluster before it gives advice, toolMax how long it
	// waits for a server that is away.
	reachMax = 2 * time.Second
	toolMax  = 20 * time.Second
)

// urlFlag says where the cluster is, and by what it may be reached.
type urlFlag struct {
	url string
	by  providersFlag
}

func (f *urlFlag) add(cmd *cobra.Command) {
	f.by.add(cmd)
	f.by.secret.addClient(cmd)
	cmd.Flags().StringVar(&f.url, "url", "", "where the cluster is (default $SLUICE_URL, else what "+
		"the credential says, else sluice://"+defaultListen+")")
}

// base is the cluster's address as a URL without a path.
func (f *urlFlag) base() string {
	for _, url := range []string{f.url, os.Getenv("SLUICE_URL")} {
		if url != "" {
			return strings.TrimRight(url, "/")
		}
	}
	if url := f.by.secret.cred.url(); url != "" {
		return url
	}
	return scheme + "//" + defaultListen
}

// remotePath is a path on a cluster.
type remotePath struct {
	base string // sluice://HOST:PORT
	path string // absolute
}

// parse reads what the user wrote for a path on a cluster: sluice://HOST:PORT/a/b, or sluice:/a/b
// or /a/b on the default cluster.
func (f *urlFlag) parse(text string) (remotePath, error) {
	rest, ok := strings.CutPrefix(text, scheme+"//")
	if !ok {
		path := strings.TrimPrefix(text, scheme)
		if !strings.HasPrefix(path, "/") {
			return remotePath{}, refuse(text+" is no path on a cluster",
				"Begin it with a slash, like /"+path+", or write sluice://HOST:PORT/"+path)
		}
		return remotePath{f.base(), path}, nil
	}
	host, path, _ := strings.Cut(rest, "/")
	if host == "" {
		return remotePath{f.base(), "/" + path}, nil
	}
	return remotePath{scheme + "//" + host, "/" + path}, nil
}

// connection is a client with what it runs on.
type connection struct {
	fs        *client.FS
	providers *peer.Providers
}

func (f *urlFlag) dial(ctx context.Context) (*connection, error) {
	return dialBy(ctx, f.base(), &f.by, client.Options{WaitMax: toolMax})
}

func dialWith(ctx context.Context, url string, opts client.Options) (*connection, error) {
	return dialBy(ctx, url, &providersFlag{}, opts)
}

func dialBy(ctx context.Context, url string, by *providersFlag, opts client.Options) (*connection,
	error) {
	host, _, _ := strings.Cut(strings.TrimPrefix(url, scheme+"//"), "/")
	if _, _, err := net.SplitHostPort(host); err != nil || !strings.HasPrefix(url, scheme+"//") {
		return nil, refuse(url+" is no address of a cluster",
			"Write sluice://HOST:PORT, like sluice://"+defaultListen)
	}
	providers, err := openClient(by, url, opts.Logger)
	if err != nil {
		return nil, err
	}
	c := &connection{providers: providers}
	opts.Providers = providers
	bounds := boundClient(false)
	opts.Retain = bounds.retain
	if opts.Buffers == 0 {
		opts.Buffers = bounds.buffers
	}
	if c.fs, err = dialSoon(ctx, url, host, opts); err == nil {
		return c, nil
	}
	closeLogged(providers, opts.Logger)
	switch errs.KindOf(err) {
	case errs.Perm:
		err = by.secret.explainProof(err, url)
	case errs.Disconnected, errs.TimedOut, errs.Shutdown, errs.IO:
		err = hint(err, "Is the cluster running at %s? Start one with: sluice up   "+
			"Another address: --url or $SLUICE_URL", url)
	}
	return nil, err
}

// reachLate is when whoever has not reached a cluster begins to ask whether it is there at all. One
// that is answers much sooner, and is not asked.
const reachLate = 300 * time.Millisecond

// dialSoon is client.Dial that does not wait for a cluster that cannot be reached.
func dialSoon(ctx context.Context, url, host string, opts client.Options) (*client.FS, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	asked := make(chan struct{})
	late := time.AfterFunc(reachLate, func() {
		defer close(asked)
		if err := reach(ctx, opts.Providers.Base(), host); err != nil {
			stop(err)
		}
	})
	fs, err := client.Dial(ctx, url, opts)
	why := context.Cause(ctx)
	stop(nil)
	if !late.Stop() {
		<-asked // what it asks through is the caller's
	}
	if err != nil && why != nil {
		err = why
	}
	return fs, err
}

// metaConnection talks to the metadata service without a session: it asks, and works when nothing
// can be written down.
type metaConnection struct {
	providers *peer.Providers
	net       *peer.Network
	pool      *peer.Pool
	meta      *remote.Service
}

func dialMeta(ctx context.Context, url string, by *providersFlag) (*metaConnection, error) {
	providers, err := openClient(by, url, nil)
	if err != nil {
		return nil, err
	}
	addr := strings.TrimPrefix(url, scheme+"//")
	if err := reach(ctx, providers.Base(), addr); err != nil {
		closeLogged(providers, nil)
		return nil, err
	}
	c := &metaConnection{providers: providers}
	if c.net, err = peer.New(providers, msg.Options{}); err != nil {
		closeLogged(providers, nil)
		return nil, err
	}
	c.pool = peer.NewPool(c.net, func(context.Context, uint32) (string, error) { return addr, nil })
	c.meta, err = remote.New(remote.Options{Pool: c.pool, Node: c.net.Node, WaitMax: toolMax})
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *metaConnection) close() {
	_ = c.pool.Close() // it was only asked
	_ = c.net.Close()
	_ = c.providers.Close()
}

// reach finds out whether anybody is there. A service that is being started again is waited for,
// but not for long: mostly nobody is there, and the user wants to know.
func reach(ctx context.Context, domain fabric.Domain, addr string) error {
	node, err := msg.NewNode(msg.Options{Domain: domain})
	if err != nil {
		return err
	}
	defer node.Close()
	for limit := time.Now().Add(reachMax); ; time.Sleep(50 * time.Millisecond) {
		attempt, cancel := context.WithTimeout(ctx, toolMax)
		conn, err := node.Dial(attempt, addr)
		cancel()
		if err == nil {
			conn.Close()
			return nil
		}
		if ctx.Err() != nil || time.Now().After(limit) || errs.KindOf(err) == errs.Perm {
			return err
		}
	}
}

// close says goodbye; that it was not heard changes nothing for the user.
func (c *connection) close() {
	_ = c.fs.Close()
	_ = c.providers.Close()
}

// withPath parses a path, connects to its cluster and calls fn.
func (f *urlFlag) withPath(ctx context.Context, text string,
	fn func(fs *client.FS, path string) error) error {
	p, err := f.parse(text)
	if err != nil {
		return err
	}
	conn, err := dialBy(ctx, p.base, &f.by, client.Options{WaitMax: toolMax})
	if err != nil {
		return err
	}
	defer conn.close()
	return fn(conn.fs, p.path)
}
