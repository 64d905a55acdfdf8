package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

// imageInfo is what `sluice volume import|export --json` prints.
type imageInfo struct {
	Volume volumeInfo `json:"volume"`
	File   string     `json:"file"`
	Format string     `json:"format"`
}

func newVolumeImport() *cobra.Command {
	var f urlFlag
	var how policyFlags
	var format, size string
	var quiet, asJSON bool
	cmd := &cobra.Command{
		Use:   "import FILE NAME",
		Short: "Make a volume of a disk image",
		Long: `Makes a volume NAME as large as the disk in an image and copies the disk into it.
qemu-img does the reading, so every format that it knows can be imported: raw, qcow2, vmdk, vdi
and others; it must be installed (Debian: qemu-utils). What is a hole in the image is one in the
volume.

The format is looked at in the file. That of a raw image whose first bytes somebody else chose
should be told: --format raw, or they could pretend to be another format.

If it fails or is interrupted the volume is removed again.`,
		Example: "  sluice volume import debian.qcow2 vm1\n" +
			"  sluice volume import --format raw --size 20G disk.img vm2",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			policy, err := how.parse()
			if err != nil {
				return err
			}
			q := qemuImage{cmd: cmd, file: args[0], format: format, bar: newProgress(cmd, quiet || asJSON)}
			if err := q.look(cmd.Context()); err != nil {
				return err
			}
			wanted := q.size
			if size != "" {
				if wanted, err = parseSize(size); err != nil {
					return err
				}
				if wanted < q.size {
					return refuse(fmt.Sprintf("the disk in %s has %s, which do not fit into %s", q.file,
						admin.Bytes(q.size), size), "Write a larger --size, or none")
				}
			}
			conn, err := f.dialToCopy(cmd.Context())
			if err != nil {
				return err
			}
			defer conn.close()
			v, err := importVolume(cmd.Context(), conn.fs, &q, args[1], wanted, policy)
			q.bar.end()
			if err != nil {
				return err
			}
			return printImage(cmd, asJSON, &v, &q, "made of %s")
		},
	}
	f.add(cmd)
	how.add(cmd, &f)
	cmd.Flags().StringVar(&format, "format", "", "of the image, like qcow2 (default: look at it)")
	cmd.Flags().StringVar(&size, "size", "", "make the volume larger than the disk in the image")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "show no progress")
	addJSON(cmd, &asJSON, imageInfo{})
	return cmd
}

func printImage(cmd *cobra.Command, asJSON bool, v *meta.Volume, q *qemuImage, what string) error {
	if asJSON {
		return printJSON(cmd, imageInfo{volumeOf(v), q.file, q.format})
	}
	fmt.Fprintf(cmd.OutOrStdout(), "volume %s: %s, "+what+" (%s)\n", v.Name, admin.Bytes(v.Size),
		q.file, q.format)
	return nil
}

// importVolume makes a volume of an image. It does not stay if that fails.
func importVolume(ctx context.Context, fs *client.FS, q *qemuImage, name string, size int64,
	policy layout.Policy) (v meta.Volume, err error) {
	if v, err = fs.CreateVolumeIn(ctx, name, size, policy); err != nil {
		return v, err
	}
	if err = q.convert(ctx, fs, name, false); err != nil {
		err = errors.Join(err, fs.RemoveVolume(context.WithoutCancel(ctx), name))
	}
	return v, err
}

func newVolumeExport() *cobra.Command {
	var f urlFlag
	var format string
	var force, quiet, asJSON bool
	cmd := &cobra.Command{
		Use:   "export NAME FILE",
		Short: "Make a disk image of a volume",
		Long: `Copies a volume into a disk image. qemu-img does the writing, so every format that
it knows can be made; it must be installed (Debian: qemu-utils). Holes of the volume take no space
in the image.

A volume that a gateway has open for writing, and a file that is there already, need --force. The
file gets its name when it is complete.`,
		Example: "  sluice volume export vm1 vm1.qcow2 --format qcow2\n" +
			"  sluice volume export vm1 vm1.img",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: completeFirst(completeVolumes(&f)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if _, err := os.Lstat(args[1]); err == nil && !force {
				return refuse(args[1]+" is there already", "Name another file, or add --force to replace it")
			}
			conn, err := f.dialToCopy(ctx)
			if err != nil {
				return err
			}
			defer conn.close()
			src, v, err := openSource(ctx, conn.fs, args[0], force)
			if err != nil {
				return err
			}
			defer src.Close(context.WithoutCancel(ctx))
			q := qemuImage{cmd: cmd, file: args[1], format: format, size: v.Size,
				bar: newProgress(cmd, quiet || asJSON)}
			err = q.exportTo(ctx, conn.fs, args[0])
			q.bar.end()
			if err != nil {
				return err
			}
			return printImage(cmd, asJSON, &v, &q, "copied to %s")
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&format, "format", "raw", "of the image, like raw or qcow2")
	cmd.Flags().BoolVar(&force, "force", false,
		"replace the file; copy a volume that is being written to")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "show no progress")
	addJSON(cmd, &asJSON, imageInfo{})
	return cmd
}

// exportTo makes the image beside its place, and gives it its name at the end.
func (q *qemuImage) exportTo(ctx context.Context, fs *client.FS, name string) error {
	to := q.file
	part, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+".*")
	if err != nil {
		return errs.Wrap("export", to, err)
	}
	defer os.Remove(part.Name()) // it has its name by then, or is not wanted
	if err := errors.Join(part.Chmod(0o644), part.Close()); err != nil {
		return err
	}
	q.file = part.Name()
	err = q.convert(ctx, fs, name, true)
	q.file = to
	if err == nil {
		err = os.Rename(part.Name(), to)
	}
	return err
}
