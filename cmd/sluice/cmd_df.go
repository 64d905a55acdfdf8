package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/meta"
)

// roomInfo is the room of a tree as `sluice df --json` shows it.
type roomInfo struct {
	Path      string `json:"path"`
	Total     int64  `json:"total"`
	Free      int64  `json:"free"`
	Inodes    int64  `json:"inodes"`
	InodesMax int64  `json:"inodes_max"` // 0: no limit
}

func newDf() *cobra.Command {
	var f urlFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "df [PATH...]",
		Short: "Show the room of the file system, or of trees with quotas",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{"/"}
			}
			var all []roomInfo
			for _, arg := range args {
				err := f.withPath(cmd.Context(), arg, func(fs *client.FS, path string) error {
					st, err := fs.StatfsPath(cmd.Context(), path)
					all = append(all, roomOf(path, &st))
					return err
				})
				if err != nil {
					return err
				}
			}
			if asJSON {
				return printJSON(cmd, all)
			}
			return printRoom(cmd, all)
		},
	}
	f.add(cmd)
	addJSON(cmd, &asJSON)
	return cmd
}

func roomOf(path string, st *meta.FSStat) roomInfo {
	return roomInfo{Path: path, Total: st.Total, Free: st.Free, Inodes: st.Files,
		InodesMax: st.FilesMax}
}

func printRoom(cmd *cobra.Command, all []roomInfo) error {
	t := newTable(cmd)
	fmt.Fprintln(t, "PATH\tTOTAL\tUSED\tFREE\tINODES\tLIMIT")
	for _, r := range all {
		limit := "none"
		if r.InodesMax > 0 {
			limit = strconv.FormatInt(r.InodesMax, 10)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\n", r.Path, admin.Bytes(r.Total),
			admin.Bytes(r.Total-r.Free), admin.Bytes(r.Free), r.Inodes, limit)
	}
	return t.Flush()
}
