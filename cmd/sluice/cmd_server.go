package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// ioServerInfo is an I/O server as server ls --json shows it.
type ioServerInfo struct {
	ID       uint32    `json:"id"`
	Name     string    `json:"name"`
	Host     string    `json:"host,omitempty"`
	Addr     string    `json:"addr"`
	State    string    `json:"state"` // up, slow, down, leaving, gone
	Start    uint64    `json:"start"` // how often it was started
	Version  string    `json:"version,omitempty"`
	Since    time.Time `json:"since"`
	LastSeen time.Time `json:"last_seen"`
	Total    int64     `json:"total"`
	Free     int64     `json:"free"`
}

func newServerVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "server",
		Short: "See and remove the I/O servers of the cluster",
		Long: `I/O servers keep the data of files. They say every second that they are there: one that is
late is slow after 3 s and down after 10 s; one that was told to stop is leaving, and down then.`,
		Example: "  sluice server ls\n  sluice server rm iod3",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newServerLs(), newServerRm())
	return cmd
}

func newServerLs() *cobra.Command {
	var f registryFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the I/O servers, their states and their space",
		Long: `Lists all I/O servers that were ever heard of, those that were removed included: where they
are, in which state, how often they were started, and what space they have.`,
		Example: "  sluice server ls\n  sluice server ls --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn, err := dialRegistry(cmd, &f)
			if err != nil {
				return err
			}
			defer conn.close()
			servers, err := conn.meta.Servers(cmd.Context())
			if err != nil {
				return err
			}
			infos := []ioServerInfo{}
			for i := range servers {
				infos = append(infos, serverOf(&servers[i]))
			}
			if asJSON {
				return printJSON(cmd, infos)
			}
			return printServers(cmd, infos)
		},
	}
	f.add(cmd)
	addJSON(cmd, &asJSON, []ioServerInfo{})
	return cmd
}

func serverOf(s *meta.Server) ioServerInfo {
	return ioServerInfo{ID: s.ID, Name: fmt.Sprintf("iod%d", s.ID), Host: s.Host, Addr: s.Addr,
		State: s.State.String(), Start: s.Incarnation, Version: s.Version, Since: unixTime(s.Since),
		LastSeen: unixTime(s.LastSeen), Total: s.Total, Free: s.Free}
}

func printServers(cmd *cobra.Command, infos []ioServerInfo) error {
	t := newTable(cmd)
	fmt.Fprintln(t, "SERVER\tHOST\tADDRESS\tSTATE\tFOR\tSTART\tVERSION\tFREE\tOF")
	for _, i := range infos {
		host := i.Host
		if host == "" {
			host = "-"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", i.Name, host, i.Addr, i.State,
			admin.Age(time.Since(i.Since)), i.Start, i.Version, admin.Bytes(i.Free),
			admin.Bytes(i.Total))
	}
	return t.Flush()
}

func newServerRm() *cobra.Command {
	var f registryFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "rm SERVER...",
		Short: "Remove I/O servers that will not come back",
		Long: `Says that I/O servers will not come back: nobody waits for them, and sluice status does not
miss them. They must be down. Files that have stripes there keep them, and cannot be read whole any
more: copy or remove them before. A server that is started again joins again.`,
		Example: "  sluice server rm iod3",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := serverIDs(args)
			if err != nil {
				return err
			}
			conn, err := dialRegistry(cmd, &f)
			if err != nil {
				return err
			}
			defer conn.close()
			const done = "The server %s is removed: nobody waits for it. Started again it joins again\n"
			return removeEach(cmd, asJSON, done, args, func(i int) error {
				err := conn.meta.RemoveServer(cmd.Context(), processCaller(), ids[i])
				switch errs.KindOf(err) {
				case errs.NotFound:
					return hint(err, "See who is there: sluice server ls")
				case errs.Busy:
					return hint(err, "Take it out of sluice.toml of its host, and reload sluice serve there")
				}
				return err
			})
		},
	}
	f.add(cmd)
	addJSON(cmd, &asJSON, removedInfo{})
	return cmd
}

// serverIDs reads names of I/O servers: iod3, or 3.
func serverIDs(args []string) (ids []uint32, err error) {
	for _, arg := range args {
		n, err := strconv.ParseUint(strings.TrimPrefix(arg, "iod"), 10, 32)
		if err != nil || n == 0 {
			return nil, refuse(arg+" is no I/O server", "Write its name as sluice status does, like iod3")
		}
		ids = append(ids, uint32(n))
	}
	return ids, nil
}
