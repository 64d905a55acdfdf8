package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/client"
)

// hintsText is what people read about hints.
const hintsText = `Hints tell the I/O servers how a file is used. They change how fast it is
read and written, never what is read. Those of a file count for whoever opens it from then on;
those of a directory are what files and directories made in it begin with. They are the extended
attributes user.sluice.NAME, so setfattr and getfattr work on a mount, too.

  cache.mode      cached         through the servers' caches (default)
                  direct         past them: larger than the caches and not read twice
                  cached-writes  writes through them, reads past them
  cache.policy    scan           what is used once does not displace what is used often (default)
                  lru            the longest unused goes first
                  stream         read or written once, in order: goes soon
                  keep           goes last: small and wanted again
                  none           is not kept
  cache.unit      default, or 4K to 64K: small for small reads in random places
  direct.streams  default, plain, single or multiple: how a large direct request is cut
  direct.chunk    default, or a multiple of 4K up to 2M: the pieces of it`

func newHints() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hints",
		Short: "Tell the I/O servers how files are used: caches, units, direct transfers",
		Long:  hintsText,
		Example: "  sluice hints set cache.policy=keep /index\n  sluice hints get /index\n" +
			"  sluice hints clear /index",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newHintsGet(), newHintsSet(), newHintsClear())
	return cmd
}

func newHintsGet() *cobra.Command {
	var f urlFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "get PATH...",
		Short: "Show the hints of files and directories",
		Long: `Shows the hints of files and directories, one line for each: what is set and, for what is
not, what that means. sluice hints --help explains them.`,
		Example:           "  sluice hints get /index /data\n  sluice hints get --json /index",
		ValidArgsFunction: completePaths(&f),
		Args:              cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all := map[string]map[string]string{}
			for _, arg := range args {
				h, err := hintsOf(cmd, &f, arg)
				if err != nil {
					return err
				}
				all[arg] = hintValues(&h)
				if !asJSON {
					printHints(cmd, arg, &h)
				}
			}
			if asJSON {
				return printJSON(cmd, all)
			}
			return nil
		},
	}
	f.add(cmd)
	addJSON(cmd, &asJSON, map[string]map[string]string{})
	return cmd
}

func hintsOf(cmd *cobra.Command, f *urlFlag, arg string) (h client.How, err error) {
	err = f.withPath(cmd.Context(), arg, func(fs *client.FS, path string) error {
		h, err = fs.Hints(cmd.Context(), path)
		return err
	})
	return h, err
}

// hintValues are all hints by their short names.
func hintValues(h *client.How) map[string]string {
	values := map[string]string{}
	for _, name := range client.HintNames() {
		values[strings.TrimPrefix(name, client.HintPrefix)], _ = h.Get(name)
	}
	return values
}

func printHints(cmd *cobra.Command, path string, h *client.How) {
	values := hintValues(h)
	fmt.Fprintf(cmd.OutOrStdout(), "%s:", path)
	for _, name := range client.HintNames() {
		short := strings.TrimPrefix(name, client.HintPrefix)
		fmt.Fprintf(cmd.OutOrStdout(), " %s=%s", short, values[short])
	}
	fmt.Fprintln(cmd.OutOrStdout())
}

func newHintsSet() *cobra.Command {
	var f urlFlag
	cmd := &cobra.Command{
		Use:               "set NAME=VALUE... PATH",
		Short:             "Change hints of a file or a directory",
		Long:              hintsText,
		Example:           "  sluice hints set cache.policy=keep cache.unit=16K /index",
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: completeHints(&f),
		RunE: func(cmd *cobra.Command, args []string) error {
			last := len(args) - 1
			if err := changeHints(&client.How{}, args[:last]); err != nil {
				return err // before anybody is asked
			}
			return f.withPath(cmd.Context(), args[last], func(fs *client.FS, path string) error {
				h, err := fs.Hints(cmd.Context(), path)
				if err == nil {
					err = changeHints(&h, args[:last])
				}
				if err == nil {
					err = fs.SetHints(cmd.Context(), path, h)
				}
				return err
			})
		},
	}
	f.add(cmd)
	return cmd
}

func newHintsClear() *cobra.Command {
	var f urlFlag
	var a account
	cmd := &cobra.Command{
		Use:   "clear PATH...",
		Short: "Take all hints from files or directories",
		Long: `Takes all hints from files or directories: they are used as most files are from then on.
Files that are in a directory keep their own hints. sluice hints --help explains them.`,
		Example: "  sluice hints clear /index /data",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.run(&f, args, func(fs *client.FS, path string) error {
				err := fs.SetHints(cmd.Context(), path, client.How{})
				if err == nil {
					a.did(deed{Action: "cleared", Path: path})
				}
				return err
			})
		},
		ValidArgsFunction: completePaths(&f),
	}
	f.add(cmd)
	a.add(cmd)
	return cmd
}

// changeHints applies texts NAME=VALUE. The name may have the prefix of the extended attribute.
func changeHints(h *client.How, texts []string) error {
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return refuse(text+" is no NAME=VALUE", "Write it like cache.policy=keep")
		}
		name = client.HintPrefix + strings.TrimPrefix(name, client.HintPrefix)
		if err := h.Set(name, value); err != nil {
			return hint(err, "See: sluice hints --help")
		}
	}
	return nil
}
