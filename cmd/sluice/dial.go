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
	"github.com/sluice-storage/sluice/fabric/tcp"
	iodremote "github.com/sluice-storage/sluice/iod/remote"
	metaremote "github.com/sluice-storage/sluice/meta/remote"
	"github.com/sluice-storage/sluice/msg"
)

const (
	scheme = "sluice:"

	// reachMax is how long a tool looks for the cluster before it gives advice, toolMax how long it
	// waits for a server that is away.
	reachMax = 2 * time.Second
	toolMax  = 20 * time.Second
)

// urlFlag says where the cluster is.
type urlFlag struct{ url string }

func (f *urlFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.url, "url", "",
		"where the cluster is (default $SLUICE_URL, else sluice://"+defaultListen+")")
}

// base is the cluster's address as a URL without a path.
func (f *urlFlag) base() string {
	for _, url := range []string{f.url, os.Getenv("SLUICE_URL")} {
		if url != "" {
			return strings.TrimRight(url, "/")
		}
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
	fs     *client.FS
	domain fabric.Domain
	node   *msg.Node
	pool   *msg.Pool
	base   string
}

func (f *urlFlag) dial(ctx context.Context) (*connection, error) { return dial(ctx, f.base()) }

// dial connects a tool to a cluster.
func dial(ctx context.Context, base string) (*connection, error) {
	return dialWith(ctx, base, client.Options{WaitMax: toolMax})
}

func dialWith(ctx context.Context, base string, opts client.Options) (*connection, error) {
	addr, ok := strings.CutPrefix(base, scheme+"//")
	if _, _, err := net.SplitHostPort(addr); !ok || err != nil {
		return nil, refuse(base+" is no address of a cluster", "Write sluice://HOST:PORT, like sluice://"+
			defaultListen)
	}
	c := &connection{base: base}
	err := c.open(ctx, addr, opts)
	if err == nil {
		return c, nil
	}
	c.close()
	switch errs.KindOf(err) {
	case errs.Disconnected, errs.TimedOut, errs.Shutdown, errs.IO:
		err = hint(err, "Is the cluster running at %s? Start one with: sluice up   "+
			"Another address: --url or $SLUICE_URL", base)
	}
	return nil, err
}

// open wires a client: one node, one pool in which the metadata service is peer 0 and every I/O
// server has its id, found by asking the metadata service.
func (c *connection) open(ctx context.Context, addr string, opts client.Options) (err error) {
	if c.domain, err = tcp.Open(tcp.Options{}); err != nil {
		return err
	}
	if c.node, err = msg.NewNode(msg.Options{Domain: c.domain, Logger: opts.Logger}); err != nil {
		return err
	}
	var names *metaremote.Service
	c.pool = msg.NewPool(c.node, func(ctx context.Context, id uint32) (string, error) {
		if id == 0 {
			return addr, nil
		}
		servers, err := names.Servers(ctx)
		if err != nil {
			return "", err
		}
		return resolveFrom(servers)(ctx, id)
	})
	names, err = metaremote.New(metaremote.Options{Pool: c.pool, Domain: c.domain,
		WaitMax: opts.WaitMax})
	if err != nil {
		return err
	}
	if err := c.reach(ctx); err != nil {
		return err
	}
	data := iodremote.New(c.pool, iodremote.Options{WaitMax: opts.WaitMax})
	c.fs, err = client.New(names, data, opts)
	return err
}

// reach connects to the metadata service. One that is being started again is waited for, but not
// for long: mostly nobody is there, and the user wants to know.
func (c *connection) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reachMax)
	defer cancel()
	for {
		_, err := c.pool.Get(ctx, 0)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// close says goodbye; that it was not heard changes nothing for the user.
func (c *connection) close() {
	if c.fs != nil {
		_ = c.fs.Close()
	}
	if c.pool != nil {
		_ = c.pool.Close()
	}
	if c.node != nil {
		_ = c.node.Close()
	}
	if c.domain != nil {
		_ = c.domain.Close()
	}
}

// withPath parses a path, connects to its cluster and calls fn.
func (f *urlFlag) withPath(ctx context.Context, text string,
	fn func(fs *client.FS, path string) error) error {
	p, err := f.parse(text)
	if err != nil {
		return err
	}
	conn, err := dial(ctx, p.base)
	if err != nil {
		return err
	}
	defer conn.close()
	return fn(conn.fs, p.path)
}
