package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

func newVolumeHandover() *cobra.Command {
	var f urlFlag
	var force, asJSON bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "handover NAME",
		Short: "Have the gateway that writes to a volume give it up",
		Long: `Asks the gateway that has a volume open for writing to give it up, and waits until
it has: it lets what is under way end, makes it durable, and answers everything else with
ESHUTDOWN. Then another gateway can have the volume, with a new generation: I/O servers refuse
what the old one may still send.

For a live migration nobody has to call this: start the second gateway with --export
name=N,volume=V,standby. It serves reads, and with the first write asks the first gateway itself.

--force does not ask: it is for a gateway that does not answer. What that one has acknowledged and
not made durable is lost, as with a disk that is pulled out; nothing that it sends later is taken.`,
		Example: "  sluice volume handover db\n  sluice volume handover --timeout 5s db\n" +
			"  sluice volume handover --force db",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeFirst(completeVolumes(&f)),
		RunE: func(cmd *cobra.Command, args []string) error {
			conn, err := f.dial(cmd.Context())
			if err != nil {
				return err
			}
			defer conn.close()
			was, v, err := handOver(cmd.Context(), conn.fs, args[0], force, timeout)
			switch {
			case errs.KindOf(err) == errs.TimedOut:
				return hint(err, "If it does not answer: sluice volume handover --force %s", args[0])
			case err != nil:
				return err
			case asJSON:
				return printJSON(cmd, volumeOf(&v))
			case was == "":
				fmt.Fprintf(cmd.OutOrStdout(), "volume %s: nobody writes to it\n", v.Name)
			case v.Writer != "":
				fmt.Fprintf(cmd.OutOrStdout(), "volume %s: %s has given it up, %s has it\n", v.Name, was,
					v.Writer)
			default:
				fmt.Fprintf(cmd.OutOrStdout(), "volume %s: %s has given it up\n", v.Name, was)
			}
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "do not ask: refuse what it sends from now on")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to wait for it")
	addJSON(cmd, &asJSON, volumeInfo{})
	return cmd
}

// handOver has whoever writes to a volume give it up. was: who that is; empty: nobody.
func handOver(ctx context.Context, fs *client.FS, name string, force bool, timeout time.Duration) (
	was string, v meta.Volume, err error) {
	limit, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if v, err = fs.Volume(limit, name); err != nil {
		return "", v, err
	}
	was, first := v.Writer, v.First
	for was != "" && v.Writer == was && v.First == first {
		// It is asked again each time: a metadata service that was restarted has forgotten it.
		if v, err = fs.HandOverVolume(limit, name, force); err != nil {
			break
		}
		if force || v.Writer != was || v.First != first {
			return was, v, nil
		}
		if v, err = fs.AwaitVolume(limit, name, v.State()); err != nil {
			break
		}
	}
	if err != nil && limit.Err() != nil && ctx.Err() == nil {
		err = errs.Newf(errs.TimedOut, "", "", "%s has not given volume %s up within %v", was, name,
			timeout)
	}
	return was, v, err
}
