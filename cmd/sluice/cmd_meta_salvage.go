package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/internal/supervise"
	"github.com/sluice-storage/sluice/kv/pebblekv"
	"github.com/sluice-storage/sluice/meta/store"
)

func newMetaSalvage() *cobra.Command {
	var dir string
	var accept, asJSON bool
	cmd := &cobra.Command{
		Use:   "salvage --accept-loss",
		Short: "Make usable metadata of what is left of damaged ones",
		Long: `For people who have no backup. Reads what can be read of damaged metadata, leaves out what
was in the damaged places, and brings the rest into agreement: names whose file is lost are taken
away and told, files whose name is lost are put into /lost+found, files that were open are closed.
The damaged metadata stay in a folder beside. New files get inode numbers far behind all earlier
ones, and stripe objects that no file names any more stay where they are.`,
		Example: "  sluice meta check --dir ./c\n  sluice meta salvage --dir ./c --accept-loss",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !accept {
				return refuse("meta salvage leaves out what was lost", "Put a backup in place if there is "+
					"one. Else: sluice meta salvage --accept-loss --dir "+dir)
			}
			c, err := openCluster(dir)
			if err != nil {
				return err
			}
			return salvageMeta(cmd, c, asJSON)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultDir, "the cluster's folder")
	cmd.Flags().BoolVar(&accept, "accept-loss", false, "what was lost may be left out")
	addJSON(cmd, &asJSON, metaSalvaged{})
	return cmd
}

// metaSalvaged is what `sluice meta salvage --json` prints.
type metaSalvaged struct {
	Dir     string   `json:"dir"`
	Damaged string   `json:"damaged"` // where the damaged metadata are
	Said    []string `json:"said"`    // what was lost, and what became of the rest
}

func salvageMeta(cmd *cobra.Command, c *cluster, asJSON bool) error {
	if held, err := supervise.Held(c.lockFile()); err != nil || held {
		return errors.Join(err, refuse("the cluster in "+c.dir+" is running",
			"Stop it first, with sluice down --dir "+c.dir))
	}
	done := metaSalvaged{Dir: c.metaDir(), Said: []string{}}
	say := func(text string) {
		if done.Said = append(done.Said, text); !asJSON {
			fmt.Fprintln(cmd.OutOrStdout(), text)
		}
	}
	stamp := time.Now().UTC().Format("20060102T150405.000")
	fresh, aside := c.metaDir()+".salvage-"+stamp, c.metaDir()+".damaged-"+stamp
	opt := pebblekv.Options{Dir: c.metaDir(), Log: newLogger()}
	err := pebblekv.Salvage(opt, fresh, say)
	if err == nil {
		err = repairMeta(cmd.Context(), fresh, say)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	if err := os.Rename(c.metaDir(), aside); err != nil {
		return err
	}
	if err := os.Rename(fresh, c.metaDir()); err != nil {
		return err
	}
	if done.Damaged = aside; asJSON {
		return printJSON(cmd, done)
	}
	say("The metadata can be used. The damaged ones are in " + aside +
		"\nStart the cluster with: sluice up --dir " + c.dir)
	return nil
}

// repairMeta brings the records of a salvaged store into agreement, and makes sure of it.
func repairMeta(ctx context.Context, dir string, say func(string)) error {
	db, err := pebblekv.Open(pebblekv.Options{Dir: dir, Log: newLogger()})
	if err != nil {
		return err
	}
	err = store.Repair(ctx, db, say)
	if err == nil {
		snap := db.Snapshot()
		err = store.VerifySnapshot(snap, func(problem string) {
			say("still to be looked at: " + problem)
		})
		err = errors.Join(err, snap.Close())
	}
	return errors.Join(err, db.Close())
}
