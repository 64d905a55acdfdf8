package main

import (
	"context"
	"math"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

func newTruncate() *cobra.Command {
	var f urlFlag
	var a account
	var keep bool
	var size, reference string
	cmd := &cobra.Command{
		Use:   "truncate -s SIZE PATH...",
		Short: "Shrink or extend files to a size",
		Long: `Sets the length of files. What is cut off is gone; what is added is a hole that reads as
zeroes and takes no space. A file that is not there is made, unless -c is given.

SIZE is a number of bytes or one with a unit (64K, 10G), or with a sign before it relative to the
length now: +64K longer, -64K shorter, <1G at most, >1G at least, /4K rounded down to a multiple,
%4K rounded up.`,
		Example: "  sluice truncate -s 10G /disk.img\n  sluice truncate -s 0 /log\n" +
			"  sluice truncate -s %1M /image     # up to the next MiB\n" +
			"  sluice truncate -r /old /new      # as long as /old",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (size == "") == (reference == "") {
				return refuse("which length?", "Give one of --size and --reference")
			}
			change, err := parseSizeChange(size)
			if err != nil {
				return err
			}
			if reference != "" {
				err = f.look(cmd, []string{reference}, func(fs *client.FS, path string) error {
					st, err := fs.Stat(cmd.Context(), path)
					change = sizeChange{n: st.Size}
					return err
				})
			}
			if err != nil {
				return err
			}
			return a.run(&f, args, func(fs *client.FS, path string) error {
				return a.truncate(cmd.Context(), fs, path, change, keep)
			})
		},
		ValidArgsFunction: completePaths(&f),
	}
	f.add(cmd)
	cmd.Flags().StringVarP(&size, "size", "s", "", "the `SIZE`, or how to change it")
	cmd.Flags().StringVarP(&reference, "reference", "r", "", "take the length of this `PATH`")
	cmd.Flags().BoolVarP(&keep, "no-create", "c", false, "do not make files that are not there")
	a.add(cmd)
	return cmd
}

func (a *account) truncate(ctx context.Context, fs *client.FS, path string, change sizeChange,
	keep bool) error {
	st, err := fs.Stat(ctx, path)
	if errs.KindOf(err) == errs.NotFound {
		if keep {
			return nil
		}
		err = makeEmpty(ctx, fs, path)
	}
	if err != nil {
		return err
	}
	if st.Type == meta.Directory {
		return errs.New(errs.IsDir, "truncate", path, nil)
	}
	n, err := change.apply(st.Size)
	if err == nil {
		err = fs.Truncate(ctx, path, n)
	}
	if err == nil {
		a.did(deed{Action: "resized", Path: path})
	}
	return err
}

// makeEmpty makes a file as the umask says.
func makeEmpty(ctx context.Context, fs *client.FS, path string) error {
	f, err := fs.OpenFile(ctx, path, os.O_WRONLY|os.O_CREATE, 0o666&^umask())
	if err != nil {
		return hintMissingParent(err)
	}
	return f.Close(ctx)
}

// sizeChange is a length, or how to find it from the one that is.
type sizeChange struct {
	op byte // 0: n it is
	n  int64
}

func parseSizeChange(text string) (sizeChange, error) {
	var c sizeChange
	if text == "" {
		return c, nil
	}
	if strings.ContainsRune("+-<>/%", rune(text[0])) {
		c.op, text = text[0], text[1:]
	}
	var err error
	if c.n, err = parseSize(text); err == nil && (c.op == '/' || c.op == '%') && c.n == 0 {
		err = refuse("nothing is a multiple of 0", "Write a larger number")
	}
	return c, err
}

func (c sizeChange) apply(old int64) (int64, error) {
	n := c.n
	switch c.op {
	case '+':
		if n > math.MaxInt64-old {
			return 0, errs.New(errs.TooBig, "truncate", "", nil)
		}
		n += old
	case '-':
		n = max(old-n, 0)
	case '<':
		n = min(old, n)
	case '>':
		n = max(old, n)
	case '/':
		n = old / n * n
	case '%':
		if old > math.MaxInt64-n {
			return 0, errs.New(errs.TooBig, "truncate", "", nil)
		}
		n = (old + n - 1) / n * n
	}
	return n, nil
}
