package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// quotaInfo is a quota as `sluice quota --json` shows it. A limit of 0 is none.
type quotaInfo struct {
	Path      string `json:"path"`
	Bytes     int64  `json:"bytes"`
	BytesMax  int64  `json:"bytes_max"`
	Inodes    int64  `json:"inodes"`
	InodesMax int64  `json:"inodes_max"`
	Counting  bool   `json:"counting"`
	ID        uint64 `json:"id"`
	Ino       uint64 `json:"ino"`
}

func quotaOf(q *meta.Quota) quotaInfo {
	return quotaInfo{Path: q.Path, Bytes: q.Used.Bytes, BytesMax: q.Limit.Bytes,
		Inodes: q.Used.Inodes, InodesMax: q.Limit.Inodes, Counting: q.Counting, ID: q.ID,
		Ino: uint64(q.Dir)}
}

func newQuota() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quota",
		Short: "Limit what directory trees may hold",
		Long: `A quota limits the bytes and inodes of the tree below a directory. Bytes are the lengths of
regular files, holes included; every file, directory and link is an inode, the directory itself too.
Trees with quotas do not lie within each other. Only root, and the owner of the root directory, set
and remove quotas. sluice df, and df on a mount, show what a tree has left.`,
		Example: "  sluice quota set /home/ann --bytes 10G --inodes 1M\n  sluice quota ls",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newQuotaSet(), newQuotaGet(), newQuotaLs(), newQuotaRm())
	return cmd
}

func newQuotaSet() *cobra.Command {
	var f urlFlag
	var bytes, inodes string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "set PATH",
		Short: "Set or change the limits of a directory's tree",
		Long: `Sets the limits of the tree below a directory. What is not named stays as it is; 0 means no
limit. A tree that is there already is counted in the background: until then get and ls show
"counting", and what was found so far.`,
		Example: "  sluice quota set /home/ann --bytes 10G --inodes 1M",
		Args:    cobra.ExactArgs(1),

		ValidArgsFunction: completeFirst(completeDirs(&f)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if bytes == "" && inodes == "" {
				return hint(errs.Newf(errs.Invalid, "", "", "no limit is named"),
					"Name one or both: --bytes 10G --inodes 1M")
			}
			return f.withPath(cmd.Context(), args[0], func(fs *client.FS, path string) error {
				limit, err := quotaLimits(cmd, fs, path, bytes, inodes)
				if err != nil {
					return err
				}
				q, err := fs.SetQuota(cmd.Context(), path, limit)
				if err != nil {
					return err
				}
				return printQuotas(cmd, asJSON, []meta.Quota{q})
			})
		},
	}
	f.add(cmd)
	addJSON(cmd, &asJSON, []quotaInfo{})
	cmd.Flags().StringVar(&bytes, "bytes", "", "how many bytes, like 10G; 0: no limit")
	cmd.Flags().StringVar(&inodes, "inodes", "", "how many inodes, like 1M (1,000,000); 0: no limit")
	return cmd
}

// quotaLimits are the limits that a directory has, with those that are named in their place.
func quotaLimits(cmd *cobra.Command, fs *client.FS, path, bytes, inodes string) (
	limit meta.Usage, err error) {

	switch q, err := fs.Quota(cmd.Context(), path); errs.KindOf(err) {
	case errs.OK:
		limit = q.Limit
	case errs.NoData:
	default:
		return limit, err
	}
	if bytes != "" {
		if limit.Bytes, err = parseSize(bytes); err != nil {
			return limit, err
		}
	}
	if inodes != "" {
		limit.Inodes, err = parseCount(inodes)
	}
	return limit, err
}

// parseCount reads a number with a decimal unit: 500, 20K, 1M, 2G.
func parseCount(text string) (int64, error) {
	number, unit := strings.TrimRight(text, "KMGkmg"), int64(1)
	switch strings.ToUpper(text[len(number):]) {
	case "":
	case "K":
		unit = 1e3
	case "M":
		unit = 1e6
	case "G":
		unit = 1e9
	default:
		number = ""
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return 0, errs.Newf(errs.Invalid, "", "",
			"%q is no count: write a number or a unit, like 500, 20K or 1M", text)
	}
	return n * unit, nil
}

func newQuotaGet() *cobra.Command {
	var f urlFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "get PATH",
		Short: "Show the quota of the tree that a path lies in",
		Long: `Shows the limits of the tree that a path lies in, and what is used of them. The path need
not be the directory that the quota was set on. One that lies in no such tree is an error.`,
		Example:           "  sluice quota get /home/ann/src",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeFirst(completePaths(&f)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.withPath(cmd.Context(), args[0], func(fs *client.FS, path string) error {
				q, err := fs.Quota(cmd.Context(), path)
				if err != nil {
					return err
				}
				return printQuotas(cmd, asJSON, []meta.Quota{q})
			})
		},
	}
	f.add(cmd)
	addJSON(cmd, &asJSON, []quotaInfo{})
	return cmd
}

func newQuotaLs() *cobra.Command {
	var f urlFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List all quotas",
		Long: `Lists all trees with quotas, with their limits and what is used of them. STATE is ok, full,
or counting while what is there is being counted; limits count from the first moment on.`,
		Example: "  sluice quota ls\n  sluice quota ls --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn, err := f.dial(cmd.Context())
			if err != nil {
				return err
			}
			defer conn.close()
			all, err := conn.fs.Quotas(cmd.Context())
			if err != nil {
				return err
			}
			return printQuotas(cmd, asJSON, all)
		},
	}
	f.add(cmd)
	addJSON(cmd, &asJSON, []quotaInfo{})
	return cmd
}

func newQuotaRm() *cobra.Command {
	var f urlFlag
	var a account
	cmd := &cobra.Command{
		Use:   "rm PATH...",
		Short: "Remove the quotas of directories; what is in them stays",
		Long: `Removes the limits of the trees below directories. What is in the directories
stays, and may grow from then on. Name the directories that the quotas were set on: see sluice
quota ls.`,
		Example: "  sluice quota rm /home/ann",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.run(&f, args, func(fs *client.FS, path string) error {
				err := fs.RemoveQuota(cmd.Context(), path)
				if err == nil {
					a.did(deed{Action: "removed", Path: path})
				}
				return err
			})
		},
		ValidArgsFunction: completePaths(&f),
	}
	f.add(cmd)
	a.add(cmd)
	return cmd
}

func printQuotas(cmd *cobra.Command, asJSON bool, all []meta.Quota) error {
	infos := make([]quotaInfo, len(all))
	for i := range all {
		infos[i] = quotaOf(&all[i])
	}
	if asJSON {
		return printJSON(cmd, infos)
	}
	t := newTable(cmd)
	fmt.Fprintln(t, "PATH\tBYTES\tLIMIT\tINODES\tLIMIT\tSTATE")
	for _, q := range infos {
		bytesMax, inodesMax, state := "none", "none", "ok"
		if q.BytesMax > 0 {
			bytesMax = admin.Bytes(q.BytesMax)
		}
		if q.InodesMax > 0 {
			inodesMax = strconv.FormatInt(q.InodesMax, 10)
		}
		switch {
		case q.Counting:
			state = "counting"
		case q.BytesMax > 0 && q.Bytes >= q.BytesMax || q.InodesMax > 0 && q.Inodes >= q.InodesMax:
			state = "full"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\n", q.Path, admin.Bytes(q.Bytes), bytesMax, q.Inodes,
			inodesMax, state)
	}
	return t.Flush()
}
