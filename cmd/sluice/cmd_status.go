package main

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/supervise"
	"github.com/sluice-storage/sluice/iod/remote"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/peer"
)

// askMax is how long a status waits for an answer: one that comes late is of no use.
const askMax = 3 * time.Second

func newStatus() *cobra.Command {
	var dir string
	var asJSON bool
	var by providersFlag
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show a cluster's processes, servers, space and counters",
		Long: `Shows the processes of the cluster in a folder with their restarts and why, its I/O servers
with their space and how they are reached, memory, and the counters of the metadata service. Servers
that do not answer are shown as such. It works while the cluster is down, too.`,
		Example: "  sluice status\n  sluice status --dir ./c --json | jq .servers",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := openCluster(dir)
			if err != nil {
				return err
			}
			r, err := c.report(cmd.Context(), &by)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd, r)
			}
			return r.WriteText(cmd.OutOrStdout(), time.Now())
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultDir, "the cluster's folder")
	by.add(cmd)
	addJSON(cmd, &asJSON, admin.Report{})
	return cmd
}

// report gathers what can be found out. Servers that do not answer are part of the report, not an
// error.
func (c *cluster) report(ctx context.Context, by *providersFlag) (*admin.Report, error) {
	r := &admin.Report{Cluster: c.cfg.ID, Dir: c.dir, Processes: []supervise.Process{},
		Servers: []admin.Server{}}
	held, err := supervise.Held(c.lockFile())
	if err != nil {
		return nil, err
	}
	r.Running = held
	state, err := supervise.ReadState(c.stateFile())
	if err == nil {
		r.PID, r.Since, r.Processes = state.PID, state.Started, state.Processes
	}
	if !held {
		return r, nil
	}
	r.Admin = c.adminAddrs()
	up := c.readUp()
	r.URL, r.Mount = up.URL, up.Mount
	if r.URL == "" {
		r.Problems = append(r.Problems, "the cluster is starting or stopping")
		return r, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askMax)
	defer cancel()
	if up.TrustLocal {
		r.Problems = append(r.Problems, trustWarning)
	}
	if err := askCluster(ctx, by.within(c), r); err != nil {
		r.Problems = append(r.Problems, "the metadata service does not answer: "+err.Error())
	}
	return r, nil
}

// askCluster asks the metadata service, and then every server that it knows.
func askCluster(ctx context.Context, by *providersFlag, r *admin.Report) error {
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
	if r.Volumes, err = countVolumes(ctx, conn.meta); err != nil {
		return err
	}
	if r.Meta, err = askMeta(ctx, conn.net, strings.TrimPrefix(r.URL, scheme+"//")); err != nil {
		return err
	}
	if r.Meta.Problem != "" {
		r.Problems = append(r.Problems, "the metadata service refuses changes: "+r.Meta.Problem)
	}
	askServers(ctx, conn.net, r.Servers, servers)
	return nil
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
		list = append(list, admin.Server{ID: s.ID, Addr: s.Addr, Up: s.Up, Total: s.Total,
			Free: s.Free, LastSeen: time.Unix(0, s.LastSeen), Verifier: s.Verifier})
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
