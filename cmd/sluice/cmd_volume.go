package main

import (
	"cmp"
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
	Epoch   uint32     `json:"generation"`       // of its writers: the present ones, or the last
	Shared  bool       `json:"shared,omitempty"` // several clients write to it
	Asked   bool       `json:"asked,omitempty"`  // its writer was asked to hand it over
}

// layoutInfo is how something is striped.
type layoutInfo struct {
	Unit    int64    `json:"unit"`
	Servers []uint32 `json:"servers"`
}

func newVolume() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "volume",
		Short: "Make, list, copy and remove block volumes",
		Long: `A volume is a block device, striped over the I/O servers. It takes space as it is
written to. Serve it with: sluice nbd --export name=N,volume=V

One gateway at a time writes to a volume. Each has a generation of its own, which every I/O server
that holds a part of the volume knows before the gateway may write: what an earlier one still
sends is refused there.`,
		Example: "  sluice volume create db 10G\n  sluice volume ls\n  sluice volume resize db 20G\n" +
			"  sluice volume clone db db-test\n  sluice volume import debian.qcow2 vm1\n" +
			"  sluice volume handover db\n  sluice volume rm db",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newVolumeCreate(), newVolumeLs(), newVolumeResize(), newVolumeClone(),
		newVolumeImport(), newVolumeExport(), newVolumeHandover(), newVolumeRm())
	return cmd
}

func newVolumeCreate() *cobra.Command {
	var f urlFlag
	var how policyFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "create NAME SIZE",
		Short: "Make a volume",
		Long: `Makes a volume, a block device of SIZE bytes that reads as zeroes. SIZE is a number
or one with a unit: 10G, 512M. Nothing is reserved: space is taken when something is written.`,
		Example: "  sluice volume create db 10G\n" +
			"  sluice volume create --width 2 --unit 256K --pool fast log 1G",
		ValidArgsFunction: cobra.NoFileCompletions,
		Args:              cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			size, err := parseSize(args[1])
			if err != nil {
				return err
			}
			policy, err := how.parse()
			if err != nil {
				return err
			}
			conn, err := f.dial(cmd.Context())
			if err != nil {
				return err
			}
			defer conn.close()
			v, err := conn.fs.CreateVolumeIn(cmd.Context(), args[0], size, policy)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd, volumeOf(&v))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "volume %s: %s, striped over %d servers\n"+
				"serve it with: sluice nbd --export name=%s,volume=%s\n",
				v.Name, admin.Bytes(v.Size), len(v.Layout.Servers), v.Name, v.Name)
			return nil
		},
	}
	f.add(cmd)
	how.add(cmd, &f)
	addJSON(cmd, &asJSON, volumeInfo{})
	return cmd
}

func newVolumeLs() *cobra.Command {
	var f urlFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the volumes",
		Long: `Lists all volumes with their sizes, over how many servers they are striped in which
units, when they were made, and which client has one open for writing.`,
		Example: "  sluice volume ls\n  sluice volume ls --json",
		Args:    cobra.NoArgs,
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
			fmt.Fprintln(t, "NAME\tSIZE\tSERVERS\tUNIT\tCREATED\tWRITER")
			for _, v := range infos {
				fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\n", v.Name, admin.Bytes(v.Size),
					len(v.Layout.Servers), admin.Bytes(v.Layout.Unit), v.Created.Format(time.DateTime),
					cmp.Or(v.Writer, "-"))
			}
			return t.Flush()
		},
	}
	f.add(cmd)
	addJSON(cmd, &asJSON, []volumeInfo{})
	return cmd
}

func volumeOf(v *meta.Volume) volumeInfo {
	return volumeInfo{Name: v.Name, Size: v.Size,
		Layout:  layoutInfo{Unit: v.Layout.Unit, Servers: v.Layout.Servers},
		Created: time.Unix(0, v.Created), Ino: uint64(v.Ino), Writer: v.Writer,
		Epoch: v.Epoch, Shared: v.Shared, Asked: v.Asked}
}

func newVolumeRm() *cobra.Command {
	var f urlFlag
	var a account
	cmd := &cobra.Command{
		Use:   "rm NAME...",
		Short: "Remove volumes and their data",
		Long: `Removes volumes with all that was written to them. There is no way back. One that
is open for writing, by sluice nbd mostly, is not removed: end that first.`,
		Example: "  sluice volume rm db log",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s := newClusters(&f)
			fs, _, err := s.open(cmd.Context(), "/")
			if err != nil {
				return err
			}
			for _, name := range args {
				if err := fs.RemoveVolume(cmd.Context(), name); err != nil {
					a.failed(name, err)
					continue
				}
				a.did(deed{Action: "removed", Path: name})
			}
			return a.end(s)
		},
		ValidArgsFunction: completeVolumes(&f),
	}
	f.add(cmd)
	a.add(cmd)
	return cmd
}
