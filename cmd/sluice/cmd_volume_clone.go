package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

// clonedInfo is what `sluice volume clone --json` prints.
type clonedInfo struct {
	Volume  volumeInfo `json:"volume"`
	From    string     `json:"from"`
	Data    int64      `json:"data_bytes"`    // that are no holes in the source
	Written int64      `json:"written_bytes"` // that had to be written
	Seconds float64    `json:"seconds"`
}

// cloneOptions is what a clone was asked for.
type cloneOptions struct {
	policy        layout.Policy
	resume, force bool
	bar           progress
}

func newVolumeClone() *cobra.Command {
	var f urlFlag
	var how policyFlags
	var o cloneOptions
	var quiet, asJSON bool
	cmd := &cobra.Command{
		Use:   "clone FROM TO",
		Short: "Copy a volume",
		Long: `Makes a volume TO and copies all of FROM into it, several pieces at a time. Holes
stay holes, and long runs of zeroes become some. The copy is durable when the command returns.

Nobody should write to FROM meanwhile, or the copy is of no moment in particular: a volume that a
gateway has open for writing is refused unless --force is given. TO is open for writing meanwhile,
so that nobody else can write to it.

A copy that fails or is interrupted is removed again. One whose command was killed stays as it is:
--resume goes on with it, and writes only what differs; or remove it.`,
		Example: "  sluice volume clone golden vm1\n  sluice volume clone --resume golden vm1\n" +
			"  sluice volume clone --width 2 --pool fast golden vm2",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: completeFirst(completeVolumes(&f)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.policy, err = how.parse(); err != nil {
				return err
			}
			conn, err := f.dial(cmd.Context())
			if err != nil {
				return err
			}
			defer conn.close()
			o.bar = newProgress(cmd, quiet || asJSON)
			began := time.Now()
			v, did, err := cloneVolume(cmd.Context(), conn.fs, args[0], args[1], o)
			o.bar.end()
			if err != nil {
				return err
			}
			took := time.Since(began)
			if asJSON {
				return printJSON(cmd, clonedInfo{volumeOf(&v), args[0], did.Data, did.Written,
					took.Seconds()})
			}
			fmt.Fprintf(cmd.OutOrStdout(),
				"volume %s: %s, of which %s are data and %s were written, in %v\n", v.Name,
				admin.Bytes(v.Size), admin.Bytes(did.Data), admin.Bytes(did.Written),
				took.Round(time.Millisecond))
			return nil
		},
	}
	f.add(cmd)
	how.add(cmd, &f)
	cmd.Flags().BoolVar(&o.resume, "resume", false, "go on with a copy that was killed")
	cmd.Flags().BoolVar(&o.force, "force", false, "copy a volume that is being written to")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "show no progress")
	addJSON(cmd, &asJSON, clonedInfo{})
	return cmd
}

// cloneVolume copies a volume into one that it makes, or that is there and resumed. One that it has
// made does not stay if that fails.
func cloneVolume(ctx context.Context, fs *client.FS, from, to string, o cloneOptions) (
	v meta.Volume, did client.VolumeCopied, err error) {
	src, was, err := openSource(ctx, fs, from, o.force)
	if err != nil {
		return v, did, err
	}
	defer src.Close(context.WithoutCancel(ctx))
	made := false
	if v, err = fs.CreateVolumeIn(ctx, to, was.Size, o.policy); err == nil {
		made = true
	} else if errs.KindOf(err) != errs.Exists || !o.resume {
		if errs.KindOf(err) == errs.Exists {
			err = hint(err, "Remove it first, or go on with a copy that was killed: --resume")
		}
		return v, did, err
	}
	dst, v, err := fs.OpenVolume(ctx, to, false)
	if err == nil {
		did, err = client.CopyVolume(ctx, dst, src, client.VolumeCopy{Resume: !made,
			Expect: o.bar.expect, Moved: o.bar.add})
		err = errors.Join(err, dst.Close(context.WithoutCancel(ctx)))
	}
	if err != nil && made {
		err = errors.Join(err, fs.RemoveVolume(context.WithoutCancel(ctx), to))
	}
	return v, did, err
}

// openSource opens a volume to be copied, which nobody should write to.
func openSource(ctx context.Context, fs *client.FS, name string, force bool) (
	*client.File, meta.Volume, error) {
	v, err := fs.Volume(ctx, name)
	if err != nil {
		return nil, v, err
	}
	if v.Writer != "" && !force {
		return nil, v, hint(errs.Newf(errs.Busy, "", "", "volume %s is open for writing by %s", name,
			v.Writer), "Stop that gateway first, or add --force: then the copy is of no moment in "+
			"particular")
	}
	return fs.OpenVolume(ctx, name, true)
}
