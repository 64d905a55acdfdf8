package main

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/internal/supervise"
	"github.com/sluice-storage/sluice/iod/remote"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/peer"
)

// reporting is a report that is being made.
type reporting struct{ *admin.Report }

func newReport() reporting {
	return reporting{&admin.Report{Processes: []supervise.Process{}, Servers: []admin.Server{},
		Hosts: []admin.Host{}, Clients: []admin.Client{}}}
}

// ask asks the metadata service for everything, and every I/O server for its counters. It tells
// whether the metadata service has answered.
func (r reporting) ask(ctx context.Context, by *providersFlag) bool {
	ctx, cancel := context.WithTimeout(ctx, askMax)
	defer cancel()
	if err := r.askAll(ctx, by); err != nil {
		text := "the metadata service does not answer: " + err.Error()
		if errs.KindOf(err) == errs.Perm {
			text = explain(by.secret.explainProof(err, r.URL))
		}
		r.Problems = append(r.Problems, text)
	}
	return r.Report.Meta != nil
}

func (r reporting) askAll(ctx context.Context, by *providersFlag) error {
	conn, err := dialMeta(ctx, r.URL, by)
	if err != nil {
		return err
	}
	defer conn.close()
	servers, err := conn.meta.Servers(ctx)
	if err != nil {
		return err
	}
	r.Servers = append(r.Servers, adminServers(servers)...)
	room, err := conn.meta.StatFS(ctx, meta.RootIno)
	if err != nil {
		return err
	}
	r.Space = admin.Space{Total: room.Total, Free: room.Free, Files: room.Files}
	r.Volumes, err = countVolumes(ctx, conn.meta)
	if err = r.unlessRefused(err, "volumes"); err != nil {
		return err
	}
	m, err := askMeta(ctx, conn.net, strings.TrimPrefix(r.URL, scheme+"//"))
	if err != nil {
		return err
	}
	r.Report.Meta, r.Cluster = m, cmp.Or(r.Cluster, m.Cluster)
	if m.Problem != "" {
		r.Problems = append(r.Problems, "the metadata service refuses changes: "+m.Problem)
	}
	if err := r.askMembers(ctx, conn); err != nil {
		return err
	}
	r.Map = conn.meta.MapVersion()
	askServers(ctx, conn.net, r.Servers, servers)
	return nil
}

// unlessRefused makes what is not shown to this user a remark.
func (r reporting) unlessRefused(err error, what string) error {
	switch errs.KindOf(err) {
	case errs.Perm, errs.Access:
		r.Problems = append(r.Problems, what+" are shown to root and the owner of the cluster only")
		return nil
	}
	return err
}

// askMembers asks for hosts and clients.
func (r reporting) askMembers(ctx context.Context, conn *metaConnection) error {
	hosts, err := conn.meta.Hosts(ctx)
	if err != nil {
		return err
	}
	for _, h := range hosts {
		r.Hosts = append(r.Hosts, admin.Host{Name: h.Name, State: h.State.String(),
			Roles: h.Roles.String(), Version: h.Version, Start: h.Incarnation,
			Since: unixTime(h.Since), LastSeen: unixTime(h.LastSeen)})
	}
	if err := r.unlessRefused(r.askCertificates(ctx, conn), "certificates"); err != nil {
		return err
	}
	for after := uint64(0); ; {
		page, err := conn.meta.ListClients(ctx, processCaller(), after, meta.ClientPageMax)
		if err = r.unlessRefused(err, "clients"); err != nil || len(page) == 0 {
			return err
		}
		for i := range page {
			r.Clients = append(r.Clients, adminClient(&page[i]))
		}
		after = page[len(page)-1].Session
	}
}

// askCertificates adds what the registry knows of hosts.
func (r reporting) askCertificates(ctx context.Context, conn *metaConnection) error {
	for after := ""; ; {
		page, err := conn.meta.ListMembers(ctx, processCaller(), identity.Host, after,
			meta.MemberPageMax)
		if err != nil || len(page) == 0 {
			return err
		}
		for i := range page {
			r.certificate(memberOf(&page[i]))
		}
		after = page[len(page)-1].Name
	}
}

func (r reporting) certificate(m memberInfo) {
	i := slices.IndexFunc(r.Hosts, func(h admin.Host) bool { return h.Name == m.Name })
	if i < 0 {
		i, r.Hosts = len(r.Hosts), append(r.Hosts, admin.Host{Name: m.Name})
		defer slices.SortFunc(r.Hosts, func(a, b admin.Host) int { return cmp.Compare(a.Name, b.Name) })
	}
	h := &r.Hosts[i]
	h.Expires = m.Expires
	h.Roles = cmp.Or(h.Roles, m.Roles.String())
}

func unixTime(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

func adminClient(c *meta.Client) admin.Client {
	a := admin.Client{Session: fmt.Sprintf("%016x", c.Session), Name: c.Name, Mount: c.About.Mount,
		Version: c.About.Version, Open: c.Open, Since: unixTime(c.Since),
		LastSeen: unixTime(c.LastSeen)}
	if c.Peer.Name != "" {
		a.Peer = c.Peer.Kind.String() + " " + c.Peer.Name
	}
	return a
}

// countVolumes asks for all volumes, a page at a time.
func countVolumes(ctx context.Context, names meta.Volumes) (n int, err error) {
	for from := ""; ; {
		page, err := names.ListVolumes(ctx, meta.Caller{}, from, meta.VolumePageMax)
		if err != nil || len(page) == 0 {
			return n, err
		}
		n += len(page)
		from = meta.NextVolume(page[len(page)-1].Name)
	}
}

// adminServers are servers as a report has them, before they are asked.
func adminServers(servers []meta.Server) (list []admin.Server) {
	for _, s := range servers {
		list = append(list, admin.Server{ID: s.ID, Addr: s.Addr, Up: s.Up, State: s.State.String(),
			Host: s.Host, Version: s.Version, Start: s.Incarnation, Since: unixTime(s.Since),
			Total: s.Total, Free: s.Free, LastSeen: unixTime(s.LastSeen), Verifier: s.Verifier})
	}
	return list
}

// askServers asks all I/O servers at once for their counters.
func askServers(ctx context.Context, net *peer.Network, to []admin.Server, from []meta.Server) {
	pool := peer.NewPool(net, resolveFrom(from))
	defer pool.Close()
	asker := remote.New(pool, remote.Options{})
	defer asker.Close()
	var wg sync.WaitGroup
	for i := range to {
		if !to[i].Up {
			continue
		}
		wg.Go(func() {
			conn, err := pool.Get(ctx, to[i].ID)
			if err == nil {
				to[i].Way = wayOf(net, conn)
			}
			st, err := asker.Status(ctx, to[i].ID)
			if err != nil {
				to[i].Problem = err.Error()
				return
			}
			to[i].Uptime = int64(st.UptimeMs)
			for _, c := range st.Counts {
				to[i].Counts = append(to[i].Counts, admin.Count{Name: c.Name, Value: c.Value})
			}
		})
	}
	wg.Wait()
}

// resolveFrom finds addresses in a list.
func resolveFrom(servers []meta.Server) peer.Resolve {
	return func(_ context.Context, id uint32) (string, error) {
		for _, s := range servers {
			if s.ID == id {
				return s.Addr, nil
			}
		}
		return "", errs.Newf(errs.NotFound, "resolve", "", "no server %d", id)
	}
}

// mountShown is a mount's directory as others are shown it.
func mountShown(dir string) string {
	if full, err := filepath.Abs(dir); err == nil {
		dir = full
	}
	return dir[:min(len(dir), meta.MountMax)]
}
