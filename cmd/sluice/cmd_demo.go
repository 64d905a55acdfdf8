package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
)

const (
	demoFile   = "/demo.bin"
	demoVolume = "demo"
	demoBytes  = 16 << 20
)

func newDemo() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show a running cluster at work: make a volume, write and read a striped file",
		Long: `Makes a volume of 1 GiB and a file of 16 MiB of random bytes on a running cluster,
reads the file back through the client library and, where there is one, through the mount,
compares, and shows which server holds how much of it. What it makes stays: /demo.bin, and the
volume demo.`,
		Example: "  sluice up -d && sluice demo",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := openCluster(dir)
			if err != nil {
				return err
			}
			up := c.readUp()
			if up.URL == "" {
				return refuse("the cluster in "+dir+" is not running",
					"Start it with: sluice up -d --dir "+dir)
			}
			conn, err := dialBy(cmd.Context(), up.URL, (providersFlag{}).within(c),
				client.Options{WaitMax: toolMax})
			if err != nil {
				return err
			}
			defer conn.close()
			return runDemo(cmd, conn.fs, up)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultDir, "the cluster's folder")
	return cmd
}

func runDemo(cmd *cobra.Command, fs *client.FS, up upInfo) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	_, err := fs.CreateVolume(ctx, demoVolume, 1<<30, 0, 0)
	if err != nil && !errors.Is(err, errs.Exists) {
		return err
	}
	fmt.Fprintf(out, "\nA volume of 1 GiB is there: %s. Serve it as a block device with:\n"+
		"  %s nbd --url %s --export name=%s,volume=%s\n", demoVolume, os.Args[0], up.URL, demoVolume,
		demoVolume)

	data := make([]byte, demoBytes)
	rand.Read(data)
	if err := writeDemo(ctx, fs, data); err != nil {
		return err
	}
	if err := readDemo(ctx, fs, data); err != nil {
		return err
	}
	where := "through the client library"
	if up.Mount != "" {
		got, err := os.ReadFile(filepath.Join(up.Mount, demoFile))
		if err != nil {
			return err
		}
		if !bytes.Equal(got, data) {
			return errs.Newf(errs.Corrupt, "demo", demoFile, "the mount shows other bytes")
		}
		where += " and the mount"
	}
	fmt.Fprintf(out, "\n%s of random bytes were written to %s, made durable, and read back %s.\n"+
		"Every server holds its part:\n", admin.Bytes(demoBytes), demoFile, where)
	s, err := statPath(ctx, fs, demoFile, false)
	if err != nil {
		return err
	}
	return printStat(cmd, &s)
}

func writeDemo(ctx context.Context, fs *client.FS, data []byte) error {
	f, err := fs.OpenFile(ctx, demoFile, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(ctx, data, 0)
	if err == nil {
		err = f.Sync(ctx)
	}
	return errors.Join(err, f.Close(ctx))
}

func readDemo(ctx context.Context, fs *client.FS, want []byte) error {
	f, err := fs.Open(ctx, demoFile)
	if err != nil {
		return err
	}
	got := make([]byte, len(want))
	_, err = f.ReadAt(ctx, got, 0)
	err = errors.Join(err, f.Close(ctx))
	if err == nil && !bytes.Equal(got, want) {
		err = errs.Newf(errs.Corrupt, "demo", demoFile, "other bytes came back")
	}
	return err
}
