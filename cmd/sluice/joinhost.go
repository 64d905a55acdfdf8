package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/sluice-storage/sluice/config"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
)

// joining makes a host of a cluster out of a machine that has just been given a credential: its
// folder, the numbers of its I/O servers, and its file sluice.toml. It can be repeated, and finds
// what an attempt has left that was killed.
type joining struct {
	dir    string
	cred   *identity.Credential
	iods   int
	stores []string // absolute
	listen string   // host or address, without a port; empty: the one that reaches the cluster
}

// run does all of it; made tells whether there was something to do.
func (j *joining) run(ctx context.Context) (c *cluster, made bool, err error) {
	if c, err = j.folder(); err != nil {
		return nil, false, err
	}
	if isFile(c.configFile()) {
		return c, false, nil
	}
	if j.cred.Roles&identity.RoleIod == 0 {
		j.iods = 0
	}
	listen, err := j.address(ctx)
	if err != nil {
		return nil, false, err
	}
	ids, err := j.numbers(ctx, c)
	if err != nil {
		return nil, false, err
	}
	return c, true, writeFile(c.configFile(), j.config(c, listen, ids), 0o644)
}

// folder makes the folder, or opens what an earlier attempt has made.
func (j *joining) folder() (*cluster, error) {
	id := hex.EncodeToString(j.cred.Cluster[:8])
	c, err := openCluster(j.dir)
	switch {
	case err == nil && c.cfg.ID != id:
		return nil, refuse(fmt.Sprintf("the folder %s belongs to another cluster", j.dir),
			"Choose another folder: --dir")
	case err == nil:
		c.cfg.Host = j.cred.Name
		return c, c.saveConfig()
	case !errors.Is(err, errs.NotFound):
		return nil, err
	}
	abs, err := filepath.Abs(j.dir)
	if err != nil {
		return nil, err
	}
	c = &cluster{dir: abs, as: j.dir, cfg: clusterConfig{Format: 1, ID: id, Host: j.cred.Name,
		Security: j.security(), Stores: j.stores, Joined: true}}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return nil, err
	}
	return c, errors.Join(c.makeDirs(), c.saveConfig())
}

// security is what the cluster's other hosts speak.
func (j *joining) security() config.Security {
	if j.cred.Plaintext {
		return config.Authenticated
	}
	return config.TLS
}

// address is where this host's servers listen: the address by which it reaches the cluster, unless
// one was named.
func (j *joining) address(ctx context.Context) (string, error) {
	if j.listen != "" {
		return j.listen, nil
	}
	if len(j.cred.Addresses) == 0 {
		return "", refuse("the cluster has not said where its metadata service is",
			"Name this host's own address with --listen")
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", j.cred.Addresses[0])
	if err != nil {
		return "", hint(err, "Is the metadata service reached from here? Or name this host's own "+
			"address with --listen, and type the same again")
	}
	defer conn.Close()
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	return host, err
}

// numbers are given out by the metadata service, which knows all I/O servers of the cluster.
func (j *joining) numbers(ctx context.Context, c *cluster) ([]uint32, error) {
	if j.iods == 0 {
		return nil, nil
	}
	by := (providersFlag{}).within(c)
	url := scheme + "//" + j.cred.Addresses[0]
	conn, err := dialMeta(ctx, url, by)
	if err != nil {
		return nil, by.unreached(err, url,
			"Type the same again when the metadata service is reached from here")
	}
	defer conn.close()
	return c.reserveServers(ctx, conn.meta, j.iods)
}

// config is the file of the host.
func (j *joining) config(c *cluster, listen string, ids []uint32) []byte {
	f := &config.Config{Host: j.cred.Name, Security: j.security(), Join: j.cred.Addresses,
		Listen: config.List{net.JoinHostPort(listen, "0")}}
	for _, id := range ids {
		d := config.Iod{ID: int(id)}
		if len(j.stores) > 0 {
			d.Store = c.pathsOf(nil, int(id))
		}
		f.Iods = append(f.Iods, d)
	}
	return config.Render(f, configHead)
}
