package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe/logstore"
)

// problemsShown is how many problems are printed; more are counted.
const problemsShown = 100

func newStoreCheck() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check PATH...",
		Short: "Verify everything that a store holds, while no server has it open",
		Long: `Verifies superblocks, log and index, that they agree with each other, and every block of
data against its checksum. It changes nothing: the log is replayed in memory only.

It ends with exit code 0 when everything verifies, and with 1 when something does not; then it says
what, and what to do.`,
		Example: "  sluice store check /srv/sluice\n  sluice store check --json /dev/nvme1n1",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, done, err := openMembers(args, true)
			if err != nil {
				return err
			}
			defer done()
			return verifyStore(cmd, "check", asJSON, 0,
				func(ctx context.Context, how logstore.ScrubOptions) (logstore.Scrubbed, error) {
					return logstore.CheckWith(ctx, o, how)
				})
		},
	}
	addJSON(cmd, &asJSON, verdict{})
	return cmd
}

func newStoreScrub() *cobra.Command {
	var rate string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "scrub PATH...",
		Short: "Read and verify all data of a store at a limited rate",
		Long: `Opens the store as a server does, so that the log is replayed and put in place, then reads
all data at a limited rate and verifies every block against its checksum, and closes the store.

It ends with exit code 0 when everything verifies, and with 1 when something does not. A block that
does not verify is an error for whoever reads it, never zeroes; writing the block heals it.`,
		Example: "  sluice store scrub --rate 50M /srv/sluice\n" +
			"  sluice store scrub --rate 0 /mnt/a /mnt/b",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			limit, err := parseSize(rate)
			if err != nil {
				return err
			}
			s, err := logstore.OpenPaths(logstore.PathOptions{Paths: args, Logger: newLogger()})
			if err != nil {
				return storeAdvice(err)
			}
			err = verifyStore(cmd, "scrub", asJSON, limit, s.Scrub)
			if closed := s.Close(); err == nil {
				err = closed
			}
			return err
		},
	}
	cmd.Flags().StringVar(&rate, "rate", "100M", "bytes a second that are read; 0: no limit")
	addJSON(cmd, &asJSON, verdict{})
	return cmd
}

// verdict is what check and scrub --json print.
type verdict struct {
	Objects  uint64   `json:"objects"`
	Bytes    uint64   `json:"bytes"`
	Problems uint64   `json:"problems"`
	Found    []string `json:"found"` // the first of them
}

// verifyStore runs a check or a scrub, shows how far it is, and says what it found.
func verifyStore(cmd *cobra.Command, verb string, asJSON bool, rate int64,
	run func(context.Context, logstore.ScrubOptions) (logstore.Scrubbed, error)) error {
	v := verdict{Found: []string{}}
	bar := newProgress(cmd, asJSON)
	meter := meterOf(bar)
	done, err := run(cmd.Context(), logstore.ScrubOptions{
		BytesPerSecond: rate,
		Report: func(p logstore.Problem) {
			if len(v.Found) < problemsShown {
				v.Found = append(v.Found, p.String())
			}
		},
		Progress: meter,
	})
	bar.end()
	if err != nil {
		return storeAdvice(err)
	}
	v.Objects, v.Bytes, v.Problems = done.Objects, done.Bytes, done.Problems
	if asJSON {
		if err := printJSON(cmd, v); err != nil {
			return err
		}
	} else {
		v.print(cmd)
	}
	if v.Problems == 0 {
		return nil
	}
	return hint(errs.Newf(errs.Corrupt, "store "+verb, "", "%d problems", v.Problems),
		"Blocks named above give errors to who reads them: restore those ranges from a copy, or "+
			"write\n  them anew. Lost entries of the index: restore the store. Look for the cause in "+
			"the kernel's log")
}

func (v *verdict) print(cmd *cobra.Command) {
	for _, text := range v.Found {
		fmt.Fprintln(cmd.OutOrStdout(), text)
	}
	if more := v.Problems - uint64(len(v.Found)); more > 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "... and %d more\n", more)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s, %s read, %s\n", plural(int(v.Objects), "object"),
		admin.Bytes(int64(v.Bytes)), plural(int(v.Problems), "problem"))
}

// meterOf turns "so many of so many on this device" into steps of a bar.
func meterOf(bar progress) func(device string, done, total int64) {
	expected, seen := map[string]int64{}, map[string]int64{}
	return func(device string, done, total int64) {
		if total > expected[device] {
			bar.expect(total - expected[device])
			expected[device] = total
		}
		bar.add(done - seen[device])
		seen[device] = done
	}
}
