package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/meta"
)

func newChmod() *cobra.Command {
	var f urlFlag
	var a account
	var recursive bool
	cmd := &cobra.Command{
		Use:   "chmod MODE PATH...",
		Short: "Change rights",
		Long: `Changes the rights of files and directories. MODE is a number in base eight (640,
1777) or a list of changes: who (u, g, o, a), an operator (+, -, =) and rights (r, w, x, X, s, t;
X is x for directories and for what somebody may execute). As with chmod(1) a number leaves the
set-user and set-group bits of directories alone unless it has five digits, like 00755. Symbolic
links are followed, below -R they are left out: they have no rights of their own. A MODE that
begins with - is written behind --.`,
		Example: "  sluice chmod 640 /secret\n  sluice chmod -R u=rwX,go=rX /shared\n" +
			"  sluice chmod +t /tmp\n  sluice chmod -- -w /final",
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := parseModeChange(args[0])
			if err != nil {
				return err
			}
			return a.run(&f, args[1:], func(fs *client.FS, path string) error {
				if !recursive {
					st, err := fs.Stat(cmd.Context(), path)
					if err != nil {
						return err
					}
					return a.chmod(cmd.Context(), fs, path, &st, m)
				}
				return a.tree(cmd.Context(), fs, path, func(path string, st *meta.Attr) error {
					return a.chmod(cmd.Context(), fs, path, st, m)
				})
			})
		},
		ValidArgsFunction: completeAfterFirst(completePaths(&f)),
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&recursive, "recursive", "R", false, "also what is below directories")
	a.add(cmd)
	return cmd
}

func (a *account) chmod(ctx context.Context, fs *client.FS, path string, st *meta.Attr,
	m modeChange) error {
	if st.Type == meta.Symlink {
		return nil
	}
	mode := m.apply(client.FileMode(st), st.Type == meta.Directory)
	if err := fs.Chmod(ctx, path, mode); err != nil {
		return err
	}
	a.did(deed{"changed", path, lsMode(&meta.Attr{Type: st.Type, Mode: client.ModeBits(mode)})})
	return nil
}
