package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/stripe/logstore"
)

func newStoreDump() *cobra.Command {
	var asJSON bool
	var limit int
	cmd := &cobra.Command{
		Use:   "dump PATH...",
		Short: "Show the records of a store's log and index, for people who look for a fault",
		Long: `Shows, member by member, the superblock, the batches and records of the log that a restart
would read, and the objects of the index with the places of their clusters. It changes nothing, and
shows no data. With --json every line is a document.`,
		Example: "  sluice store dump /srv/sluice | less\n" +
			"  sluice store dump --max 0 --json /dev/nvme1n1 | jq 'select(.object==\"12.1.0\")'",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, done, err := openMembers(args, false)
			if err != nil {
				return err
			}
			defer done()
			d := dumper{out: cmd.OutOrStdout(), limit: limit, json: asJSON}
			for _, dev := range o.Devices {
				if err := logstore.Walk(dev, o, d.item); err != nil {
					return storeAdvice(err)
				}
			}
			if d.cut {
				fmt.Fprintf(cmd.ErrOrStderr(), "sluice: there is more than %d lines: see --max\n", limit)
			}
			return d.err
		},
	}
	cmd.Flags().IntVar(&limit, "max", 10000, "end after so many `LINES`; 0: never")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object a line")
	return cmd
}

// dumper prints items up to a limit.
type dumper struct {
	out   io.Writer
	limit int
	json  bool
	lines int
	cut   bool
	err   error
}

func (d *dumper) item(it logstore.Item) bool {
	if d.limit > 0 && d.lines == d.limit {
		d.cut = true
		return false
	}
	d.lines++
	text := []byte(it.Text)
	if d.json {
		text, d.err = json.Marshal(it)
	}
	if d.err == nil {
		_, d.err = d.out.Write(append(text, '\n'))
	}
	return d.err == nil
}
