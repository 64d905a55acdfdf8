package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/kv/pebblekv"
	"github.com/sluice-storage/sluice/meta/store"
)

func newMetaCheck() *cobra.Command {
	var dir string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Verify the metadata of a cluster that is down",
		Long: `Verifies that logs and tables are what was written, reads all of them, and compares the
records with each other: names, files, directories, links. It changes nothing.

It ends with exit code 0 when everything verifies, and with 1 when something does not; then it says
what, and what to do.`,
		Example: "  sluice meta check --dir ./c",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := openCluster(dir)
			if err != nil {
				return err
			}
			return checkMeta(cmd, c, asJSON)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultDir, "the cluster's folder")
	addJSON(cmd, &asJSON, metaVerdict{})
	return cmd
}

// metaVerdict is what meta check --json prints.
type metaVerdict struct {
	Dir      string   `json:"dir"`
	Problems uint64   `json:"problems"`
	Found    []string `json:"found"` // the first of them
}

func (v *metaVerdict) add(text string) {
	v.Problems++
	if len(v.Found) < problemsShown {
		v.Found = append(v.Found, text)
	}
}

func checkMeta(cmd *cobra.Command, c *cluster, asJSON bool) error {
	v := metaVerdict{Dir: c.metaDir(), Found: []string{}}
	err := pebblekv.Check(pebblekv.Options{Dir: c.metaDir(), Log: newLogger()},
		func(err error) { v.add(err.Error()) },
		func(snap kv.Snapshot) error { return store.VerifySnapshot(snap, v.add) })
	if err != nil {
		return metaAdvice(err, c.dir)
	}
	if asJSON {
		if err := printJSON(cmd, v); err != nil {
			return err
		}
	} else {
		for _, text := range v.Found {
			fmt.Fprintln(cmd.OutOrStdout(), text)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", v.Dir, plural(int(v.Problems), "problem"))
	}
	if v.Problems == 0 {
		return nil
	}
	return metaAdvice(errs.Newf(errs.Corrupt, "meta check", c.metaDir(), "%d problems", v.Problems),
		c.dir)
}

// metaAdvice says what to do about metadata that does not open.
func metaAdvice(err error, dir string) error {
	switch errs.KindOf(err) {
	case errs.Busy:
		return hint(err, "The metadata service has it open: stop it with sluice down --dir %s", dir)
	case errs.Corrupt, errs.Invalid:
		return hint(err, "Nothing was changed. What is damaged: sluice meta check --dir %[1]s\n"+
			"  Put a backup in its place if there is one. Without: sluice meta salvage --dir %[1]s "+
			"--accept-loss", dir)
	}
	return err
}
