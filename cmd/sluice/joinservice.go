package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/config"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/join"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// joinFlag says where others join the cluster. A cluster that was given it once has keys, and
// serves it again when it is started without.
type joinFlag struct{ listen string }

func (f *joinFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.listen, "join", "", "`ADDR` where others join the cluster, like "+
		"127.0.0.1:9401; its keys are made if there are none (default: where it was, off without keys)")
}

func (f *joinFlag) args() []string {
	if f.listen == "" {
		return nil
	}
	return []string{"--join", f.listen}
}

func (f *joinFlag) check() error {
	if f.listen == "" {
		return nil
	}
	if err := join.CheckAddress(f.listen); err != nil {
		return hint(err, "Write HOST:PORT, like 127.0.0.1:9401")
	}
	return nil
}

// joinAt is where to listen: where it was said, or where it was before; empty: nowhere.
func (c *cluster) joinAt(f *joinFlag) (string, error) {
	if f.listen == "" && !c.cfg.Security.Keyed() && !identity.HasAuthority(c.keysDir()) {
		return "", nil
	}
	last, err := os.ReadFile(c.path("join.addr"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	before := strings.TrimSpace(string(last))
	host, port, _ := net.SplitHostPort(f.listen)
	was, _, _ := net.SplitHostPort(before)
	switch {
	case f.listen == "" && before == "" && c.cfg.Security.Keyed():
		first, _, _ := strings.Cut(c.cfg.Listen, ",")
		return joinBeside(first), nil
	case f.listen == "" && before == "":
		return "127.0.0.1:0", nil
	case f.listen == "" || port == "0" && host == was: // members look for it where it was
		return before, nil
	}
	return f.listen, nil
}

// joiner is the join service of a metadata service's process.
type joiner struct {
	server *join.Server
	keeper *identity.Keeper // of this host's own credential
	stop   context.CancelFunc
	ended  chan struct{}
}

// startJoin serves those who want to join, if the cluster has keys or the flag says so; nil: it has
// none. metaAddr is where members find the metadata service.
func (c *cluster) startJoin(ctx context.Context, f *joinFlag, names *store.Store, metaAddr string,
	log *slog.Logger) (*joiner, error) {
	at, err := c.joinAt(f)
	if at == "" || err != nil {
		return nil, err
	}
	a, err := c.makeKeys()
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", at)
	if err != nil {
		return nil, hint(err, "Another program has the address: choose one with --join")
	}
	addr := ln.Addr().String()
	s, err := join.NewServer(ctx, join.Options{Authority: a, Registry: names, Name: c.hostName(),
		Addresses: func() []string { return []string{metaAddr} }, Join: []string{addr}, Log: log,
		Plaintext: c.cfg.Security == config.Authenticated})
	if err != nil {
		ln.Close()
		return nil, hint(err, "The keys in %s are not those of this cluster's metadata: put the "+
			"right ones there, or a backup of both", c.keysDir())
	}
	j := &joiner{server: s, ended: make(chan struct{})}
	run, stop := context.WithCancel(ctx)
	j.stop = stop
	go func() {
		defer close(j.ended)
		if err := s.Serve(ln); err != nil {
			log.Error("nobody can join any more", "err", err)
		}
	}()
	if err := j.own(run, c, a, names, metaAddr, addr, log); err != nil {
		j.close(ctx)
		return nil, err
	}
	for _, file := range []string{c.path("join.addr"), c.joinAddrFile()} {
		if err := writeFile(file, []byte(addr+"\n"), 0o644); err != nil {
			j.close(ctx)
			return nil, err
		}
	}
	log.Info("others can join", "addr", addr)
	return j, nil
}

// own makes this host's own credential, if it has none, and keeps it.
func (j *joiner) own(ctx context.Context, c *cluster, a *identity.Authority, names *store.Store,
	metaAddr, addr string, log *slog.Logger) error {
	file := c.hostCredentialFile()
	old, err := identity.ReadCredential(file)
	if err == nil { // metadata that was in memory, or came from a backup, may not know it
		_, err = names.GetMember(ctx, meta.Caller{}, identity.Host, old.Name)
	}
	if errors.Is(err, errs.NotFound) || err == nil && old.Expired(time.Now()) {
		err = makeOwn(ctx, file, c.hostName(), a, names, metaAddr, addr)
	}
	if err != nil {
		return err
	}
	j.keeper, err = identity.NewKeeper(file, identity.KeeperOptions{Source: j.server, Log: log})
	if err == nil {
		go j.keeper.Run(ctx)
	}
	return err
}

// makeOwn makes the host that has the authority a member. It can be repeated.
func makeOwn(ctx context.Context, file, name string, a *identity.Authority, names *store.Store,
	metaAddr, addr string) error {
	key, now := identity.NewKey(), time.Now()
	der, err := identity.NewRequest(key)
	if err != nil {
		return err
	}
	r, err := identity.ParseRequest(der)
	if err != nil {
		return err
	}
	plan := identity.Plan(now)
	m, err := names.EnlistMember(ctx, meta.Caller{}, meta.Member{Kind: identity.Host,
		Name: name, Roles: identity.RolesAll,
		Certificates: []meta.Certificate{{Serial: plan.Serial, NotAfter: plan.NotAfter.UnixNano()}}})
	if err != nil {
		return err
	}
	chain, err := a.Issue(r, m.Kind, m.Name, plan, now)
	if err != nil {
		return err
	}
	cred, err := identity.NewCredential(key, &identity.Grant{Cluster: a.Cluster(), Kind: m.Kind,
		Name: m.Name, Roles: m.Roles, Addresses: []string{metaAddr}, Join: []string{addr},
		Certificate: chain, Authorities: identity.RawChain(a.Roots()), Now: now})
	if err != nil {
		return err
	}
	return cred.Write(file)
}

func (j *joiner) close(ctx context.Context) {
	if j == nil {
		return
	}
	j.stop()
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = j.server.Close(limit) // those who are joining repeat it
	<-j.ended
}

// families are the metrics of the join service.
func (j *joiner) families(f *families) {
	if j == nil {
		return
	}
	n := j.server.Counts()
	f.count("join_joined_total", "Certificates that were given for tokens.", uint64(n.Joined))
	f.count("join_renewed_total", "Certificates that were renewed.", uint64(n.Renewed))
	f.count("join_notices_total", "Members that asked what has changed.", uint64(n.Notices))
	f.count("join_refused_total", "Connections and requests that were refused.", uint64(n.Refused))
}
