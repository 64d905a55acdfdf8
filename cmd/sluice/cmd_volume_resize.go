package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/errs"
)

func newVolumeResize() *cobra.Command {
	var f urlFlag
	var force, asJSON bool
	cmd := &cobra.Command{
		Use:   "resize NAME SIZE",
		Short: "Give a volume another size",
		Long: `Makes a volume larger or, with --force, smaller. SIZE is a number or one with a
unit: 20G; with a plus in front it is added: +10G.

A volume grows while it is used. Gateways learn it at once: clients that connect from then on see
the new size. The NBD protocol has no way to tell those that are connected: let them reconnect (a
guest of QEMU: block_resize behind a new connection).

What lies behind the end of a smaller volume is lost for ever, so --force must say that this is
meant, and no gateway may have it open for writing.`,
		Example: "  sluice volume resize db 20G\n  sluice volume resize db +5G\n" +
			"  sluice volume resize --force log 512M",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: completeFirst(completeVolumes(&f)),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, text := args[0], args[1]
			size, err := parseSize(strings.TrimPrefix(text, "+"))
			if err != nil {
				return err
			}
			conn, err := f.dial(cmd.Context())
			if err != nil {
				return err
			}
			defer conn.close()
			was, err := conn.fs.Volume(cmd.Context(), name)
			if err != nil {
				return err
			}
			if strings.HasPrefix(text, "+") {
				size += was.Size
			}
			v, err := conn.fs.ResizeVolume(cmd.Context(), name, size, force)
			switch {
			case errs.KindOf(err) == errs.Invalid && size < was.Size && !force:
				return hint(err, "Add --force if what lies behind %s is not needed any more", text)
			case errs.KindOf(err) == errs.Busy:
				return hint(err, "It can only grow while it is written to. End that gateway, or: "+
					"sluice volume handover %s", name)
			case err != nil:
				return err
			case asJSON:
				return printJSON(cmd, volumeOf(&v))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "volume %s: %s, before %s\n", name, admin.Bytes(v.Size),
				admin.Bytes(was.Size))
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "make it smaller, and lose what lies behind its end")
	addJSON(cmd, &asJSON, volumeInfo{})
	return cmd
}
