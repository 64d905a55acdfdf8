package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/iod/server"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier"
)

// drainMax is how long a server may take to answer what is under way when it is told to stop.
const drainMax = 5 * time.Second

func newIod() *cobra.Command {
	var dir, listen, bytes string
	var id int
	var paths []string
	var by providersFlag
	var memory memoryFlags
	var web adminFlag
	cmd := &cobra.Command{
		Use:   "iod --dir DIR --id N",
		Short: "Run one I/O server of a cluster; sluice up does that for you",
		Long: `Runs one I/O server of the cluster in a folder, in the foreground, until it is told to stop
by SIGTERM or SIGINT. Its store lies in the cluster's folder, or where --store says. It finds the
metadata service, and stays away when another process has its store open. sluice up starts all
servers of a cluster and starts those again that die; this is for other supervisors.`,
		Example: "  sluice iod --dir ./c --id 1\n  sluice iod --dir ./c --id 2 --memory 2G",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(by.secret.check(), checkListen(listen, by.secret.keyed())); err != nil {
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
			size, err := parseSize(bytes)
			if err != nil {
				return err
			}
			p := iodParts{id: uint32(id), paths: paths, listen: listen, web: &web, log: newLogger(),
				bytes: size}
			if len(p.paths) == 0 {
				p.paths = c.storePaths(id)
			}
			if p.plan, err = memory.plan(len(p.paths)); err != nil {
				return err
			}
			if err := p.apply(&memory); err != nil {
				return err
			}
			if err := errors.Join(c.checkPrivate(), web.check(false)); err != nil {
				return err
			}
			return runIod(cmd.Context(), c, &by, p)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultDir, "the cluster's folder")
	cmd.Flags().IntVar(&id, "id", 0, "which one, from 1 on")
	cmd.Flags().StringArrayVar(&paths, "store", nil,
		"a member of the store, a folder or a block device; several times for several "+
			"(default as the cluster was made)")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "where to listen, one HOST:PORT or "+
		"several with commas; port 0: any")
	cmd.Flags().StringVar(&bytes, "size", "0", "how large each folder of a new store is; 0: as its "+
		"file system")
	memory.add(cmd)
	web.add(cmd, defaultAdmin)
	web.addClients(cmd)
	by.add(cmd)
	by.secret.addServer(cmd)
	return cmd
}

// runIod serves until ctx ends, then drains: what is under way is answered, what comes is refused.
func runIod(ctx context.Context, c *cluster, by *providersFlag, p iodParts) error {
	spareProcs(procsLeast)
	p.plan.applyHeap()
	store, storeID, life, err := c.openStore(&p)
	if err != nil {
		return err
	}
	defer store.Close()
	known, err := c.hostIdentity(ctx, &by.secret, p.log)
	if err != nil {
		return err
	}
	p.web.keeper = known
	providers, err := c.openServer(by, known, p.log)
	if err != nil {
		return err
	}
	defer closeLogged(providers, p.log)
	net, err := peer.New(providers, msg.Options{Memory: int(p.plan.network), Logger: p.log})
	if err != nil {
		return err
	}
	defer net.Close()
	if p.lends {
		p.lent = providers.Lent
	}
	p.life = life
	p.store, p.storeID, p.host = store, storeID, c.hostName()
	if p.keys, err = c.serverKeys(p.id, p.log); err != nil {
		return err
	}
	p.key = p.keys.ring
	p.clock = capability.NewClock(time.Now)
	p.sharers = func() int { return c.sharers(int(p.id)) }
	p.socket = c.socket(fmt.Sprintf("iod%d", p.id))
	s, err := serveIod(net, p)
	if err != nil {
		return err
	}
	p.log.Info("serving", "addr", net.AddrOf(s.server))
	p.maxFile = s.handler.MaxFile
	h, err := newHeart(c, net, &p, s.addr())
	if err != nil {
		return err
	}
	defer h.close()
	name := fmt.Sprintf("iod%d", p.id)
	stop, err := p.web.serve(c.adminFile(name), admin.WebOptions{Gather: s.families,
		Healthy: h.healthy, Logger: p.log, Activity: seen(name, "iod", s.handler.Activity().Snapshot)})
	if err != nil {
		return errors.Join(err, s.close(context.WithoutCancel(ctx)))
	}
	defer stop()
	err = h.beat(ctx)
	return errors.Join(err, s.close(context.WithoutCancel(ctx)))
}

// iodParts is what an I/O server is made of.
type iodParts struct {
	id      uint32
	paths   []string // of the store's members
	storeID uint64
	life    uint32          // of this start; 0: the store survives it
	maxFile func() uint64   // the highest file number that there is an object of
	host    string          // the name of this host
	key     capability.Keys // the server's own
	keys    *serverKeys     // the same, as they are told; nil: of a bench
	store   stripe.Engine
	plan    memoryPlan
	listen  string // at tcp, or where there is no socket, at these places alone
	socket  string // where clients of this host find it; empty: of a bench
	web     *adminFlag
	log     *slog.Logger
	clock   *capability.Clock // of capabilities; nil: the time of day
	sharers func() int        // how many servers share the disk, this one included; nil: no other

	writeBack bool
	lends     bool       // as it was started
	lent      mem.Source // of the cache, so that clients of this host may read it; nil: they may not
	huge      mem.Want
	ready     int64 // bytes that are ready from the start; 0: the cache's default; negative: none
	ahead     int64 // bytes of readahead, likewise
	bytes     int64 // of each folder of a new store; 0: as its file system
	reserve   int64 // bytes that the store leaves of its file system; 0: its default; negative: none
}

// apply sets what flags say of memory. The plan must be there.
func (p *iodParts) apply(f *memoryFlags) (err error) {
	if p.ready, err = f.readyBytes(&p.plan); err != nil {
		return err
	}
	if p.ahead, err = f.ahead(); err != nil {
		return err
	}
	if p.reserve, err = f.leave(); err != nil {
		return err
	}
	p.writeBack = f.writeBack
	p.huge, err = f.hugePages()
	p.lends = f.lend && p.huge != mem.Must // reserved pages cannot be lent
	return err
}

// iodServer is a running one.
type iodServer struct {
	net     *peer.Network
	cache   *unifier.Cache
	handler *server.Server
	server  *msg.Server
	store   stripe.Engine
	plan    memoryPlan
}

// families are the metrics of an I/O server.
func (s *iodServer) families() []admin.Family {
	var f families
	f.process()
	f.plan(&s.plan)
	_ = f.counts(s.handler.Counts()) // what is left the others have
	f.states(s.handler.States())
	f.cache(s.cache)
	f.store(s.store)
	f.network(s.net, s.server)
	return f.all
}

// cacheConfig is how the cache uses its part of the memory.
func (p *iodParts) cacheConfig(sizes unifier.Config, node *msg.Node) unifier.Config {
	sizes.ReadyBytes, sizes.ReadaheadBytes = p.ready, p.ahead
	sizes.HugePages, sizes.Registrar, sizes.Source = p.huge, node, p.lent
	sizes.OnLoss = func(id unifier.Key, err error) {
		p.log.Error("acknowledged data could not be written; clients will send it again",
			"object", id.String(), "err", err)
	}
	return sizes
}

func serveIod(net *peer.Network, p iodParts) (*iodServer, error) {
	bounds := boundIod(p.plan, p.writeBack)
	cache, err := unifier.New(p.cacheConfig(bounds.cache, net.Node), p.store)
	if err != nil {
		return nil, err
	}
	s := &iodServer{net: net, cache: cache, store: p.store, plan: p.plan}
	var running atomic.Pointer[msg.Server]
	var clock func() time.Time
	if p.clock != nil {
		clock = p.clock.Now
	}
	s.handler, err = server.New(server.Config{ID: p.id, StoreID: p.storeID, Key: p.key, Store: p.store,
		Life: p.life, Cache: cache, Limits: bounds.limits, WriteBack: p.writeBack, Logger: p.log,
		Clock: clock,
		More: func() []iod.Count {
			return append(p.plan.counts(), countsOf(net, running.Load())...)
		}})
	if err == nil && p.socket != "" {
		s.server, err = net.ServeHost(p.listen, p.socket, s.handler, bounds.serve)
	} else if err == nil {
		s.server, err = net.Serve(p.listen, s.handler, bounds.serve)
	}
	if err != nil {
		return nil, errors.Join(err, cache.Close())
	}
	running.Store(s.server)
	return s, nil
}

// addr is what others need to know of where the server is, on all of its networks: the rest it
// tells them.
func (s *iodServer) addr() string { return s.net.Announce(s.server) }

// close drains and gives the memory back. The store is closed by whoever opened it.
func (s *iodServer) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, drainMax)
	defer cancel()
	err := s.server.Close(ctx)
	s.handler.Close()
	return errors.Join(err, s.cache.Close())
}
