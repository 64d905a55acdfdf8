package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/meta"
)

func newChown() *cobra.Command {
	var f urlFlag
	var a account
	var recursive, link bool
	cmd := &cobra.Command{
		Use:   "chown USER[:GROUP] PATH...",
		Short: "Change owner and group",
		Long: `Changes owner and group of files and directories: USER, USER:GROUP, or :GROUP alone. Names
are those of this host; the cluster keeps numbers, so hosts should agree on them. Only root may give
files away; an owner may choose among the own groups. Symbolic links are followed, unless -P is
given; below -R links themselves are changed.`,
		Example: "  sluice chown ann /home/ann\n  sluice chown -R 1000:1000 /data\n" +
			"  sluice chown :staff /shared",
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			uid, gid, err := parseOwner(args[0])
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			return a.run(&f, args[1:], func(fs *client.FS, path string) error {
				change := fs.Lchown
				if !recursive && !link {
					change = fs.Chown
				}
				do := func(path string, _ *meta.Attr) error {
					err := change(ctx, path, uid, gid)
					if err == nil {
						a.did(deed{"changed", path, args[0]})
					}
					return err
				}
				if recursive {
					return a.tree(ctx, fs, path, do)
				}
				return do(path, nil)
			})
		},
		ValidArgsFunction: completeAfterFirst(completePaths(&f)),
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&recursive, "recursive", "R", false, "also what is below directories")
	cmd.Flags().BoolVarP(&link, "no-dereference", "P", false, "change symbolic links themselves")
	a.add(cmd)
	return cmd
}

// parseOwner reads USER, USER:GROUP or :GROUP; -1 is what is not named.
func parseOwner(text string) (uid, gid int, err error) {
	uid, gid = -1, -1
	user, group, _ := strings.Cut(text, ":")
	if user == "" && group == "" {
		return 0, 0, refuse("no owner is named", "Write USER, USER:GROUP or :GROUP")
	}
	if user != "" {
		if uid, err = parseUser(user); err != nil {
			return 0, 0, err
		}
	}
	if group != "" {
		gid, err = parseGroup(group)
	}
	return uid, gid, err
}

// completeAfterFirst completes all arguments but the first.
func completeAfterFirst(fn completer) completer {
	return func(cmd *cobra.Command, args []string, word string) (
		[]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return fn(cmd, args, word)
	}
}
