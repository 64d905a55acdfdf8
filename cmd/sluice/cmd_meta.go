package main

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/config"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/procid"
	"github.com/sluice-storage/sluice/iod/objects"
	"github.com/sluice-storage/sluice/iod/remote"
	"github.com/sluice-storage/sluice/kv/pebblekv"
	"github.com/sluice-storage/sluice/meta/store"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
)

func newMeta() *cobra.Command {
	var dir, listen string
	var by providersFlag
	var web adminFlag
	var sessions sessionFlag
	var at joinFlag
	cmd := &cobra.Command{
		Use:   "meta --dir DIR",
		Short: "Run the metadata service of a cluster; sluice up does that for you",
		Long: `Runs the metadata service of the cluster in a folder, in the foreground, until it
is told to stop by SIGTERM or SIGINT. sluice up does that, and starts it again when it dies; this
is for other supervisors. The commands below verify, back up and repair what it keeps.`,
		Example: "  sluice meta --dir ./c\n  sluice meta dump backup",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := openCluster(dir)
			if err != nil {
				return err
			}
			if listen != "" {
				c.cfg.Listen = listen
			}
			c.cfg.Security = config.Security(by.secret.security)
			err = errors.Join(by.secret.check(), checkListen(c.cfg.Listen, by.secret.keyed()),
				c.checkPrivate(), web.check(false), sessions.check(), at.check())
			if err != nil {
				return err
			}
			return runMeta(cmd.Context(), c, &by, &web, &sessions, &at)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultDir, "the cluster's folder")
	cmd.Flags().StringVar(&listen, "listen", "", "where to listen, one HOST:PORT or several with "+
		"commas; port 0: any, and then always the same (default as the cluster was made)")
	web.add(cmd, defaultAdmin)
	web.addClients(cmd)
	sessions.add(cmd)
	at.add(cmd)
	by.add(cmd)
	by.secret.addServer(cmd)
	cmd.AddCommand(newMetaCheck(), newMetaDump(), newMetaLoad(), newMetaSalvage())
	return cmd
}

// metaReserve is how much of its file system the metadata service keeps for removals: four
// memtables, which is what it may have to write out before their log is free.
const metaReserve = 64 << 20

// runMeta serves names until ctx ends, then drains.
func runMeta(ctx context.Context, c *cluster, by *providersFlag, web *adminFlag,
	sessions *sessionFlag, at *joinFlag) error {
	collectSeldom()
	log := newLogger()
	sizes := boundMeta().kv
	sizes.Dir, sizes.ReserveBytes, sizes.Log = c.metaDir(), metaReserve, log
	db, err := pebblekv.Open(sizes)
	if err != nil {
		return metaAdvice(err, c.dir)
	}
	defer db.Close()
	self := newLateIdentity()
	providers, err := c.openServer(by, self, log)
	if err != nil {
		return err
	}
	defer closeLogged(providers, log)
	net, err := peer.New(providers, msg.Options{Logger: log})
	if err != nil {
		return err
	}
	defer net.Close()

	var known directory
	pool := peer.NewPool(net, known.resolve)
	defer pool.Close()
	servers := remote.New(pool, remote.Options{})
	defer servers.Close()
	keys, err := c.capabilityKeys(at, log)
	if err != nil {
		return err
	}
	opts := store.Options{
		Objects: objects.New(servers, keys, nil),
		Key:     keys,
		Host:    c.hostName,
		Log:     log,
		Dead:    procid.Dead,
		OnMove:  pool.Moved,

		// Whoever made the cluster owns its root directory.
		RootUID: uint32(os.Getuid()),
		RootGID: uint32(os.Getgid()),
	}
	sessions.apply(&opts)
	names, err := store.New(ctx, db, opts)
	if err != nil {
		return err
	}
	defer names.Stop()
	known.names.Store(names)
	defer keys.follow(ctx, names)()

	handler, err := newMetaHandler(names, db.Health, net, log)
	if err != nil {
		return err
	}
	handler.self = self
	return serveMeta(ctx, c, handler, web, at)
}

// serveMeta answers until ctx ends.
func serveMeta(ctx context.Context, c *cluster, handler *metaHandler, web *adminFlag,
	at *joinFlag) error {
	handler.id = c.cfg.ID
	s, err := handler.net.ServeHost(c.metaListen(c.cfg.Listen), c.socket("meta"), handler,
		boundMeta().serve)
	if err != nil {
		return hint(err, "Another program has the address: choose one with sluice up --listen")
	}
	handler.running.Store(s)
	handler.joiner, err = c.startJoin(ctx, at, handler.names, s.Addr(), handler.log)
	if err != nil {
		return err
	}
	defer handler.joiner.close(ctx)
	if handler.joiner != nil {
		handler.self.set(handler.joiner.keeper)
		web.keeper = handler.joiner.keeper
	}
	if err := writeFile(c.metaAddrFile(), []byte(s.Addr()+"\n"), 0o644); err != nil {
		return err
	}
	stop, err := web.serve(c.adminFile("meta"), admin.WebOptions{Gather: handler.families,
		Healthy: handler.health, Logger: handler.log,
		Activity: seen("meta", "meta", handler.activity)})
	if err != nil {
		return err
	}
	defer stop()
	handler.log.Info("serving", "addr", handler.net.AddrOf(s))
	<-ctx.Done()
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainMax)
	defer cancel()
	return s.Close(limit)
}

// metaListen is where to listen, of what was asked for. A service that was given any free port
// keeps it when it starts again: its clients look for it there. Of several addresses the first is
// where they look.
func (c *cluster) metaListen(listen string) string {
	first, rest, several := strings.Cut(listen, ",")
	host, port, err := net.SplitHostPort(first)
	if err != nil || port != "0" {
		return listen
	}
	addr, err := c.metaAddr()
	if was, _, e := net.SplitHostPort(addr); err != nil || e != nil || was != host {
		return listen
	}
	if several {
		return addr + "," + rest
	}
	return addr
}

// directory finds I/O servers for the metadata service itself, which knows them once it has
// started.
type directory struct{ names atomic.Pointer[store.Store] }

func (d *directory) resolve(ctx context.Context, id uint32) (string, error) {
	names := d.names.Load()
	if names == nil {
		return "", errs.Newf(errs.Again, "resolve", "", "the service is starting")
	}
	servers, err := names.Servers(ctx)
	if err != nil {
		return "", err
	}
	return resolveFrom(servers)(ctx, id)
}
