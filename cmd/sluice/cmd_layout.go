package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

const layoutText = `A file is cut into units, which lie on its I/O servers in turn. How large the
units are, over how many servers they go (the width) and which servers may be used (the pool, see
sluice pool) can be said for a directory, for what is made in it from then on: files are striped
by it, and new directories begin with it. What is there stays as it is. It can be said for a
file, too, until the first byte is written to it. What nobody has said the cluster chooses: units
of 1M over all servers that are up and have room, at most 8.

  unit   64K to 16M, a power of two
  width  how many servers, up to 256, or all; servers that are away or full are left out
  pool   a name of sluice pool ls

They are the extended attributes user.sluice.unit, .width and .pool of directories, and
user.sluice.layout of files, so that setfattr and getfattr work on a mount, too. default means that
the cluster chooses.`

// placedInfo is a layout as `sluice layout get --json` shows it. What is 0 or empty nobody has
// said.
type placedInfo struct {
	Path   string      `json:"path"`
	Unit   int64       `json:"unit"`
	Width  string      `json:"width"` // a number, all, or default
	Pool   string      `json:"pool"`
	Layout *layoutInfo `json:"layout,omitempty"` // of a file: what came of it
}

func newLayout() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "layout",
		Short: "Say how new files are striped: unit, width and pool of servers",
		Long:  layoutText,
		Example: "  sluice layout set --unit 4M --width all /checkpoints\n" +
			"  sluice layout set --pool fast --width 1 /index\n  sluice layout get /checkpoints\n" +
			"  sluice layout clear /index",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newLayoutGet(), newLayoutSet(), newLayoutClear())
	return cmd
}

func newLayoutGet() *cobra.Command {
	var f urlFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "get PATH...",
		Short: "Show how files are striped, and what directories say",
		Long: `Shows what was said for files and directories, one line for each, and of a file how it is
striped: the unit, and its servers, that of the first unit first. sluice stat tells how much each
of them holds.`,
		Example: "  sluice layout get /checkpoints /checkpoints/17\n" +
			"  sluice layout get --json /checkpoints | jq '.[].width'",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completePaths(&f),
		RunE: func(cmd *cobra.Command, args []string) error {
			all := []placedInfo{}
			err := f.look(cmd, args, func(fs *client.FS, path string) error {
				p, err := fs.Layout(cmd.Context(), path)
				if err == nil {
					all = append(all, placedOf(path, &p))
				}
				return err
			})
			perr := printPlaced(cmd, asJSON, all)
			if err != nil {
				return err
			}
			return perr
		},
	}
	f.add(cmd)
	addJSON(cmd, &asJSON, []placedInfo{})
	return cmd
}

func placedOf(path string, p *meta.Placed) placedInfo {
	info := placedInfo{Path: path, Unit: p.Policy.Unit, Width: layout.FormatWidth(p.Policy.Width),
		Pool: p.Policy.Pool}
	if p.Layout.Width() > 0 {
		info.Layout = &layoutInfo{Unit: p.Layout.Unit, Servers: p.Layout.Servers}
	}
	return info
}

func printPlaced(cmd *cobra.Command, asJSON bool, all []placedInfo) error {
	if asJSON {
		return printJSON(cmd, all)
	}
	if len(all) == 0 {
		return nil
	}
	t := newTable(cmd)
	fmt.Fprintln(t, "PATH\tUNIT\tWIDTH\tPOOL\tSTRIPED")
	for i := range all {
		p := &all[i]
		pool, striped := p.Pool, "-"
		if pool == "" {
			pool = layout.Default
		}
		if p.Layout != nil {
			striped = fmt.Sprintf("units of %s over %s", admin.Bytes(p.Layout.Unit),
				serverNames(p.Layout.Servers))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", p.Path, layout.FormatUnit(p.Unit), p.Width, pool, striped)
	}
	return t.Flush()
}

func newLayoutSet() *cobra.Command {
	var f urlFlag
	var a account
	var how policyFlags
	var deep bool
	cmd := &cobra.Command{
		Use:   "set [--unit SIZE] [--width N|all] [--pool NAME] PATH...",
		Short: "Say how what is made in a directory is striped, or a new file",
		Long: layoutText + `

What is not named stays as it is. A file that has data is refused: copy it, with sluice cp --unit,
--width and --pool, or within a directory that says so.`,
		Example: "  sluice layout set --unit 1M --width 4 --pool fast /scratch\n" +
			"  sluice layout set -R --pool default /scratch\n" +
			"  sluice layout set --width all /big   # a file that was just made: sluice touch /big",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completePaths(&f),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := how.parse(); err != nil {
				return err
			}
			if how == (policyFlags{}) {
				return refuse("nothing is named that is to be set",
					"Name some of: --unit 1M --width 4 --pool fast")
			}
			set := func(fs *client.FS, path string) error {
				was, err := fs.Layout(cmd.Context(), path)
				if err != nil {
					return err
				}
				return fs.SetLayout(cmd.Context(), path, how.over(was.Policy))
			}
			return a.run(&f, args, func(fs *client.FS, path string) error {
				return a.layouts(fs, path, deep, set)
			})
		},
	}
	f.add(cmd)
	a.add(cmd)
	how.add(cmd, &f)
	cmd.Flags().BoolVarP(&deep, "recursive", "R", false, "directories below, too, but no files")
	return cmd
}

// layouts sets the layout of a path, and with deep that of all directories below it.
func (a *account) layouts(fs *client.FS, root string, deep bool,
	set func(fs *client.FS, path string) error) error {
	one := func(path string) error {
		if err := set(fs, path); err != nil {
			return advise(err)
		}
		a.did(deed{Action: "set", Path: path})
		return nil
	}
	if !deep {
		return one(root)
	}
	return a.tree(a.cmd.Context(), fs, root, func(path string, attr *meta.Attr) error {
		if path != root && attr.Type != meta.Directory {
			return nil
		}
		return one(path)
	})
}

// advise adds what can be done where a layout cannot be set.
func advise(err error) error {
	switch errs.KindOf(err) {
	case errs.NotEmpty:
		return hint(err, "Copy it: sluice cp --unit, --width and --pool make a file that is striped so")
	case errs.Busy:
		return hint(err, "Close it there, or set the layout of its directory before the file is made")
	}
	return err
}

func newLayoutClear() *cobra.Command {
	var f urlFlag
	var a account
	var deep bool
	cmd := &cobra.Command{
		Use:   "clear PATH...",
		Short: "Leave it to the cluster how new files are striped",
		Long: `Takes what was said from directories: what is made in them from then on is striped as the
cluster chooses. Files that are there stay as they are. Of a file it can be taken until the first
byte is written to it.`,
		Example:           "  sluice layout clear /scratch\n  sluice layout clear -R /scratch",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completePaths(&f),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.run(&f, args, func(fs *client.FS, path string) error {
				return a.layouts(fs, path, deep, func(fs *client.FS, path string) error {
					return fs.SetLayout(cmd.Context(), path, layout.Policy{})
				})
			})
		},
	}
	f.add(cmd)
	a.add(cmd)
	cmd.Flags().BoolVarP(&deep, "recursive", "R", false, "directories below, too, but no files")
	return cmd
}

// policyFlags are the options of commands that say how files are striped.
type policyFlags struct{ unit, width, pool string }

func (p *policyFlags) add(cmd *cobra.Command, f *urlFlag) {
	fl := cmd.Flags()
	fl.StringVar(&p.unit, "unit", "", "stripe unit `SIZE`: 64K to 16M, a power of two, or default")
	fl.StringVar(&p.width, "width", "", "over how many servers: `N`, all, or default")
	fl.StringVar(&p.pool, "pool", "", "which servers: the `NAME` of a pool, or default")
	completeWords(cmd, "unit", "64K", "256K", "1M", "4M", "16M", layout.Default)
	completeWords(cmd, "width", "1", "all", layout.Default)
	_ = cmd.RegisterFlagCompletionFunc("pool", completePools(f))
}

// parse reads them; what is not named, or 0, is left open.
func (p *policyFlags) parse() (layout.Policy, error) {
	var out layout.Policy
	for _, x := range []struct{ name, text string }{
		{layout.AttrUnit, p.unit}, {layout.AttrWidth, p.width}, {layout.AttrPool, p.pool},
	} {
		if x.text == "" || x.text == "0" && x.name != layout.AttrPool {
			continue
		}
		if err := out.Set(x.name, x.text); err != nil {
			return out, hint(err, "See: sluice help layout")
		}
	}
	return out, nil
}

// over changes a policy where something is named.
func (p *policyFlags) over(was layout.Policy) layout.Policy {
	now, _ := p.parse()
	if p.unit != "" {
		was.Unit = now.Unit
	}
	if p.width != "" {
		was.Width = now.Width
	}
	if p.pool != "" {
		was.Pool = now.Pool
	}
	return was
}

// serverNames are servers as people see them.
func serverNames(ids []uint32) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = fmt.Sprintf("iod%d", id)
	}
	return strings.Join(names, " ")
}
