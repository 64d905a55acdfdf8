package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/iod/server"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier"
)

// drainMax is how long a server may take to answer what is under way when it is told to stop.
const drainMax = 5 * time.Second

func newIod() *cobra.Command {
	var dir, cache, listen string
	var id int
	var paths []string
	var by providersFlag
	cmd := &cobra.Command{
		Use:   "iod --dir DIR --id N",
		Short: "Run one I/O server of a cluster; sluice up does that for you",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkLoopback(listen); err != nil {
				return err
			}
			c, err := openCluster(dir)
			if err != nil {
				return err
			}
			if id < 1 || id > c.cfg.Iods {
				return refuse(fmt.Sprintf("--id %d", id),
					fmt.Sprintf("This cluster has the I/O servers 1 to %d", c.cfg.Iods))
			}
			bytes, err := parseSize(cache)
			if err != nil {
				return err
			}
			return runIod(cmd.Context(), c, &by,
				iodParts{id: uint32(id), paths: paths, cacheBytes: bytes, listen: listen, log: newLogger()})
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultDir, "the cluster's folder")
	cmd.Flags().IntVar(&id, "id", 0, "which one, from 1 on")
	cmd.Flags().StringVar(&cache, "cache", "256M",
		"memory for data; the store takes a quarter more, and as much again for its index at most")
	cmd.Flags().StringArrayVar(&paths, "store", nil,
		"a member of the store, a folder or a block device; several times for several "+
			"(default as the cluster was made)")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "where to listen; port 0: any")
	by.add(cmd)
	return cmd
}

// runIod serves until ctx ends, then drains: what is under way is answered, what comes is refused.
func runIod(ctx context.Context, c *cluster, by *providersFlag, p iodParts) error {
	store, storeID, err := c.openStore(int(p.id), p.paths, p.cacheBytes, p.log)
	if err != nil {
		return err
	}
	defer store.Close()
	net, err := c.openServer(by, p.log)
	if err != nil {
		return err
	}
	defer net.close()
	node, err := net.node()
	if err != nil {
		return err
	}
	defer node.Close()
	p.store, p.storeID, p.key = store, storeID, c.key.ServerKey(p.id)
	p.sharers, p.net = c.sharers(int(p.id)), net
	p.doors = net.doors(c, fmt.Sprintf("iod%d", p.id))
	s, err := serveIod(node, p)
	if err != nil {
		return err
	}
	p.log.Info("serving", "addr", s.server.Addr())
	h, err := newHeart(c, node, &p, s.addr())
	if err != nil {
		return err
	}
	defer h.close()
	h.beat(ctx)
	return s.close(context.WithoutCancel(ctx))
}

// iodParts is what an I/O server is made of.
type iodParts struct {
	id         uint32
	paths      []string // of the store's members; nil: the cluster's
	storeID    uint64
	key        capability.Key // the server's own
	store      stripe.Engine
	net        *network // that the node runs on; nil: of a bench, with tcp alone
	cacheBytes int64
	listen     string   // at tcp
	doors      []string // further places
	log        *slog.Logger
	sharers    int // how many servers share the disk, this one included; 0 is 1
}

// iodServer is a running one.
type iodServer struct {
	node   *msg.Node
	cache  *unifier.Cache
	server *msg.Server
}

func serveIod(node *msg.Node, p iodParts) (*iodServer, error) {
	cache, err := unifier.New(unifier.Config{MemoryBytes: p.cacheBytes, Registrar: node}, p.store)
	if err != nil {
		return nil, err
	}
	s := &iodServer{node: node, cache: cache}
	var running atomic.Pointer[msg.Server]
	handler, err := server.New(server.Config{ID: p.id, StoreID: p.storeID, Key: p.key, Store: p.store,
		Cache: cache, Logger: p.log,
		More: func() []iod.Count { return countsOf(node, running.Load()) }})
	if err == nil && p.net != nil {
		s.server, err = p.net.serve(node, p.listen, p.doors, handler, msg.ServeOptions{})
	} else if err == nil {
		s.server, err = node.Serve(p.listen, handler, msg.ServeOptions{})
	}
	if err != nil {
		return nil, errors.Join(err, cache.Close())
	}
	running.Store(s.server)
	return s, nil
}

func (s *iodServer) addr() string { return tcpAddr(s.server) }

// close drains and gives the memory back. The store is closed by whoever opened it.
func (s *iodServer) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, drainMax)
	defer cancel()
	err := s.server.Close(ctx)
	return errors.Join(err, s.cache.Close())
}
