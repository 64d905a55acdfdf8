package main

import (
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/meta"
)

// roomInfo is the room of a tree as `sluice df --json` shows it.
type roomInfo struct {
	Path       string `json:"path"`
	Total      int64  `json:"total"`
	Used       int64  `json:"used"`
	Free       int64  `json:"free"`
	UsePercent int    `json:"use_percent"` // rounded up
	Inodes     int64  `json:"inodes"`
	InodesMax  int64  `json:"inodes_max"` // 0: no limit
}

type dfOptions struct {
	human, bytes, inodes, asJSON bool
}

func newDf() *cobra.Command {
	var f urlFlag
	var o dfOptions
	cmd := &cobra.Command{
		Use:   "df [PATH...]",
		Short: "Show the room of the file system, or of trees with quotas",
		Long: `Shows how much room there is, how much is used, and how many inodes there are. For
a path in a tree with a quota that is what the quota leaves it; for any other the room of all I/O
servers that are up, or of those of its pool (sluice pool). A server that is too full for new files
has nothing free. Without PATH the root is shown.`,
		Example: "  sluice df\n  sluice df -h /home/ann /home/bob\n  sluice df -i\n  sluice df --json /",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{"/"}
			}
			all := []roomInfo{}
			err := f.look(cmd, args, func(fs *client.FS, path string) error {
				st, err := fs.StatfsPath(cmd.Context(), path)
				if err == nil {
					all = append(all, roomOf(path, &st))
				}
				return err
			})
			perr := o.print(cmd, all)
			if err != nil {
				return err
			}
			return perr
		},
		ValidArgsFunction: completePaths(&f),
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&o.bytes, "bytes", "b", false, "print bytes, without units")
	cmd.Flags().BoolVarP(&o.inodes, "inodes", "i", false, "show inodes in place of bytes")
	addHuman(cmd, &o.human)
	addJSON(cmd, &o.asJSON, []roomInfo{})
	return cmd
}

func roomOf(path string, st *meta.FSStat) roomInfo {
	used := max(st.Total-st.Free, 0)
	return roomInfo{Path: path, Total: st.Total, Used: used, Free: st.Free,
		UsePercent: percent(used, st.Total), Inodes: st.Files, InodesMax: st.FilesMax}
}

// percent is rounded up, so that 100 means that nothing is left and nothing less does mean 0.
func percent(part, all int64) int {
	if all <= 0 {
		return 0
	}
	return int(math.Ceil(100 * float64(part) / float64(all)))
}

func (o *dfOptions) print(cmd *cobra.Command, all []roomInfo) error {
	if o.asJSON {
		return printJSON(cmd, all)
	}
	if len(all) == 0 {
		return nil
	}
	t := newTable(cmd)
	if o.inodes {
		fmt.Fprintln(t, "PATH\tINODES\tLIMIT\tFREE\tUSE%")
	} else {
		fmt.Fprintln(t, "PATH\tTOTAL\tUSED\tFREE\tUSE%\tINODES\tLIMIT")
	}
	for i := range all {
		r := &all[i]
		limit, left, use := "none", "-", "-"
		if r.InodesMax > 0 {
			limit = strconv.FormatInt(r.InodesMax, 10)
			left = strconv.FormatInt(max(r.InodesMax-r.Inodes, 0), 10)
			use = strconv.Itoa(percent(r.Inodes, r.InodesMax)) + "%"
		}
		if o.inodes {
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\n", r.Path, r.Inodes, limit, left, use)
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d%%\t%d\t%s\n", r.Path, o.size(r.Total), o.size(r.Used),
			o.size(r.Free), r.UsePercent, r.Inodes, limit)
	}
	return t.Flush()
}

func (o *dfOptions) size(n int64) string {
	switch {
	case o.bytes:
		return strconv.FormatInt(n, 10)
	case o.human:
		return human(n)
	}
	return admin.Bytes(n)
}
