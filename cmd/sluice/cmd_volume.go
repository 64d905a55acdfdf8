package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/meta"
)

// volumeInfo is a volume as `sluice volume ls --json` shows it.
type volumeInfo struct {
	Name    string     `json:"name"`
	Size    int64      `json:"size"`
	Layout  layoutInfo `json:"layout"`
	Created time.Time  `json:"created"`
	Ino     uint64     `json:"ino"`
	Writer  string     `json:"writer,omitempty"` // the client that has it open for writing
}

// layoutInfo is how something is striped.
type layoutInfo struct {
	Unit    int64    `json:"unit"`
	Servers []uint32 `json:"servers"`
}

func newVolume() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "volume",
		Short: "Make, list and remove block volumes",
		Long: "A volume is a block device of a fixed size, striped over the I/O servers. " +
			"Serve it with: sluice nbd --export name=N,volume=V",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newVolumeCreate(), newVolumeLs(), newVolumeRm())
	return cmd
}

func newVolumeCreate() *cobra.Command {
	var f urlFlag
	var unit string
	var width int
	cmd := &cobra.Command{
		Use:     "create NAME SIZE",
		Short:   "Make a volume",
		Example: "  sluice volume create db 10G",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			size, err := parseSize(args[1])
			if err != nil {
				return err
			}
			unitBytes, err := parseSize(unit)
			if err != nil {
				return err
			}
			conn, err := f.dial(cmd.Context())
			if err != nil {
				return err
			}
			defer conn.close()
			v, err := conn.fs.CreateVolume(cmd.Context(), args[0], size, unitBytes, width)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "volume %s: %s, striped over %d servers\n"+
				"serve it with: sluice nbd --export name=%s,volume=%s\n",
				v.Name, admin.Bytes(v.Size), len(v.Layout.Servers), v.Name, v.Name)
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&unit, "unit", "0", "stripe unit; 0: the cluster's default")
	cmd.Flags().IntVar(&width, "width", 0, "how many servers; 0: the cluster's default")
	return cmd
}

func newVolumeLs() *cobra.Command {
	var f urlFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the volumes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn, err := f.dial(cmd.Context())
			if err != nil {
				return err
			}
			defer conn.close()
			volumes, err := conn.fs.ListVolumes(cmd.Context())
			if err != nil {
				return err
			}
			infos := make([]volumeInfo, len(volumes))
			for i := range volumes {
				infos[i] = volumeOf(&volumes[i])
			}
			if asJSON {
				return printJSON(cmd, infos)
			}
			t := newTable(cmd)
			fmt.Fprintln(t, "NAME\tSIZE\tSERVERS\tUNIT\tCREATED")
			for _, v := range infos {
				fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\n", v.Name, admin.Bytes(v.Size), len(v.Layout.Servers),
					admin.Bytes(v.Layout.Unit), v.Created.Format(time.DateTime))
			}
			return t.Flush()
		},
	}
	f.add(cmd)
	addJSON(cmd, &asJSON)
	return cmd
}

func volumeOf(v *meta.Volume) volumeInfo {
	return volumeInfo{Name: v.Name, Size: v.Size,
		Layout:  layoutInfo{Unit: v.Layout.Unit, Servers: v.Layout.Servers},
		Created: time.Unix(0, v.Created), Ino: uint64(v.Ino), Writer: v.Writer}
}

func newVolumeRm() *cobra.Command {
	var f urlFlag
	cmd := &cobra.Command{
		Use:   "rm NAME...",
		Short: "Remove volumes and their data",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			conn, err := f.dial(cmd.Context())
			if err != nil {
				return err
			}
			defer conn.close()
			for _, name := range args {
				if err := conn.fs.RemoveVolume(cmd.Context(), name); err != nil {
					return err
				}
			}
			return nil
		},
	}
	f.add(cmd)
	return cmd
}
