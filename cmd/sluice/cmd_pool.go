package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

const poolText = `A pool is a set of I/O servers with a name, say those with fast disks.
Directories and files name it (sluice layout set --pool NAME): what is made in them then goes to
its servers. A server may be in several pools, and without a pool all servers are used. df of a
directory with a pool shows the room of the pool. Files stay where they are, whatever becomes of
their pool. Only root, and the owner of the root directory, change pools.`

// poolInfo is a pool as `sluice pool ls --json` shows it.
type poolInfo struct {
	Name    string   `json:"name"`
	Servers []uint32 `json:"servers"`
	Up      int      `json:"up"` // of these
	Total   int64    `json:"total"`
	Free    int64    `json:"free"` // of the servers that are up
	ID      uint64   `json:"id"`
}

func newPool() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pool",
		Short: "Name sets of I/O servers, for files that belong on some of them",
		Long:  poolText,
		Example: "  sluice pool create fast iod1 iod2\n  sluice layout set --pool fast /index\n" +
			"  sluice pool add fast iod5\n  sluice pool ls",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPoolCreate(), newPoolLs(), newPoolAdd(), newPoolRemove(), newPoolRm())
	return cmd
}

func newPoolCreate() *cobra.Command {
	return poolChange(&cobra.Command{
		Use:   "create NAME [SERVER...]",
		Short: "Make a pool",
		Long: `Makes a pool of I/O servers, named as sluice status shows them: iod3, or 3. They must have
joined once. A pool may be empty, but then nothing can be made in it. A name has up to 63 letters,
digits, - _ and dots.`,
		Example: "  sluice pool create fast iod1 iod2",
		Args:    cobra.MinimumNArgs(1),
	}, func(cmd *cobra.Command, fs *client.FS, name string, servers []uint32) (meta.Pool, error) {
		return fs.CreatePool(cmd.Context(), name, servers)
	})
}

func newPoolAdd() *cobra.Command {
	return poolChange(&cobra.Command{
		Use:   "add NAME SERVER...",
		Short: "Add I/O servers to a pool",
		Long: `Adds I/O servers to a pool. Files that are made from then on may go there; those that are
there already stay where they are.`,
		Example: "  sluice pool add fast iod5 iod6",
		Args:    cobra.MinimumNArgs(2),
	}, func(cmd *cobra.Command, fs *client.FS, name string, servers []uint32) (meta.Pool, error) {
		return fs.ChangePool(cmd.Context(), name, servers, nil)
	})
}

func newPoolRemove() *cobra.Command {
	return poolChange(&cobra.Command{
		Use:   "remove NAME SERVER...",
		Short: "Take I/O servers out of a pool",
		Long: `Takes I/O servers out of a pool: files that are made from then on do not go there. Those
that are there stay. To remove a whole pool see sluice pool rm.`,
		Example: "  sluice pool remove fast iod5",
		Args:    cobra.MinimumNArgs(2),
	}, func(cmd *cobra.Command, fs *client.FS, name string, servers []uint32) (meta.Pool, error) {
		return fs.ChangePool(cmd.Context(), name, nil, servers)
	})
}

// poolChange makes a command that changes a pool and shows what it is then.
func poolChange(cmd *cobra.Command, change func(cmd *cobra.Command, fs *client.FS, name string,
	servers []uint32) (meta.Pool, error)) *cobra.Command {
	var f urlFlag
	var asJSON bool
	cmd.ValidArgsFunction = completePoolArgs(&f, cmd.Name() != "create")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		servers, err := parseServers(args[1:])
		if err != nil {
			return err
		}
		conn, err := f.dial(cmd.Context())
		if err != nil {
			return err
		}
		defer conn.close()
		p, err := change(cmd, conn.fs, args[0], servers)
		if err != nil {
			return err
		}
		return printPools(cmd, conn.fs, asJSON, []meta.Pool{p})
	}
	f.add(cmd)
	addJSON(cmd, &asJSON, []poolInfo{})
	return cmd
}

// parseServers reads names of servers, iod3, or their numbers.
func parseServers(args []string) ([]uint32, error) {
	var ids []uint32
	for _, arg := range args {
		id, err := strconv.ParseUint(strings.TrimPrefix(arg, "iod"), 10, 32)
		if err != nil {
			return nil, refuse(arg+" is no I/O server", "Name it as sluice status does, like iod3")
		}
		ids = append(ids, uint32(id))
	}
	return ids, nil
}

func newPoolLs() *cobra.Command {
	var f urlFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the pools",
		Long: `Lists all pools with their servers, how many of these are up, and what room those have.
What no pool names goes to all servers.`,
		Example: "  sluice pool ls\n  sluice pool ls --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn, err := f.dial(cmd.Context())
			if err != nil {
				return err
			}
			defer conn.close()
			all, err := conn.fs.Pools(cmd.Context())
			if err != nil {
				return err
			}
			return printPools(cmd, conn.fs, asJSON, all)
		},
	}
	f.add(cmd)
	addJSON(cmd, &asJSON, []poolInfo{})
	return cmd
}

func printPools(cmd *cobra.Command, fs *client.FS, asJSON bool, all []meta.Pool) error {
	servers, err := fs.Meta().Servers(cmd.Context())
	if err != nil {
		return err
	}
	infos := make([]poolInfo, len(all))
	for i := range all {
		infos[i] = poolOf(&all[i], servers)
	}
	if asJSON {
		return printJSON(cmd, infos)
	}
	t := newTable(cmd)
	fmt.Fprintln(t, "POOL\tUP\tTOTAL\tFREE\tSERVERS")
	for i := range infos {
		p := &infos[i]
		fmt.Fprintf(t, "%s\t%d/%d\t%s\t%s\t%s\n", p.Name, p.Up, len(p.Servers), admin.Bytes(p.Total),
			admin.Bytes(p.Free), serverNames(p.Servers))
	}
	return t.Flush()
}

func poolOf(p *meta.Pool, servers []meta.Server) poolInfo {
	info := poolInfo{Name: p.Name, ID: p.ID, Servers: append([]uint32{}, p.Servers...)}
	for _, s := range servers {
		if s.Up && slices.Contains(p.Servers, s.ID) {
			info.Up++
			info.Total += s.Total
			info.Free += s.Free
		}
	}
	return info
}

// poolsRemoved is what `sluice pool rm --json` prints.
type poolsRemoved struct {
	Removed []string `json:"removed"`
}

func newPoolRm() *cobra.Command {
	var f urlFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "rm NAME...",
		Short: "Remove pools; their files stay where they are",
		Long: `Removes pools. Files stay where they are. In directories that name the pool new files go to
all servers from then on, also if another pool of that name is made later: see sluice layout get.`,
		Example:           "  sluice pool rm fast",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completePools(&f),
		RunE: func(cmd *cobra.Command, args []string) error {
			conn, err := f.dial(cmd.Context())
			if err != nil {
				return err
			}
			defer conn.close()
			done := poolsRemoved{Removed: []string{}}
			for _, name := range args {
				if err = conn.fs.RemovePool(cmd.Context(), name); err != nil {
					break
				}
				done.Removed = append(done.Removed, name)
			}
			if errs.KindOf(err) == errs.NotFound {
				err = hint(err, "See: sluice pool ls")
			}
			if asJSON {
				if perr := printJSON(cmd, done); err == nil {
					err = perr
				}
			}
			return err
		},
	}
	f.add(cmd)
	addJSON(cmd, &asJSON, poolsRemoved{})
	return cmd
}

// completePools completes names of pools.
func completePools(f *urlFlag) completer {
	return func(cmd *cobra.Command, _ []string, _ string) (
		[]cobra.Completion, cobra.ShellCompDirective) {
		var names []cobra.Completion
		if conn, err := f.dial(cmd.Context()); err == nil {
			defer conn.close()
			all, _ := conn.fs.Pools(cmd.Context())
			for i := range all {
				names = append(names, all[i].Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completePoolArgs completes a pool, unless it is to be made, and then servers.
func completePoolArgs(f *urlFlag, named bool) completer {
	return func(cmd *cobra.Command, args []string, word string) (
		[]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 && named {
			return completePools(f)(cmd, args, word)
		}
		var names []cobra.Completion
		if conn, err := f.dial(cmd.Context()); err == nil && len(args) > 0 {
			defer conn.close()
			servers, _ := conn.fs.Meta().Servers(cmd.Context())
			for _, s := range servers {
				names = append(names, fmt.Sprintf("iod%d", s.ID))
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
