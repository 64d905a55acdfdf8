package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
)

type touchOptions struct {
	keep, atime, mtime, link bool
	date, stamp, reference   string
	at                       [2]time.Time // of access and of change; zero: now
}

func newTouch() *cobra.Command {
	var f urlFlag
	var a account
	var o touchOptions
	cmd := &cobra.Command{
		Use:   "touch PATH...",
		Short: "Make empty files, or set the times of files",
		Long: `Sets the times of access and of change of files to now, by the cluster's clock, or to what
-d, -t or -r says. A file that is not there is made, empty, unless -c is given.

DATE is a time like 2026-11-18T09:30:00Z, "2026-11-18 09:30:00.5", "2026-11-18 09:30" or 2026-11-18
(in the local time zone where none is named), @SECONDS since 1970, now, yesterday, tomorrow, or
"3 days ago" (also seconds, minutes, hours, weeks).`,
		Example: "  sluice touch /done\n  sluice touch -c -d '2 hours ago' /data/*\n" +
			"  sluice touch -r /original /copy\n  sluice touch -m -d @1700000000 /file",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.settle(cmd, &f); err != nil {
				return err
			}
			return a.run(&f, args, func(fs *client.FS, path string) error {
				err := o.touch(cmd.Context(), fs, path)
				if err == nil {
					a.did(deed{Action: "touched", Path: path})
				}
				return err
			})
		},
		ValidArgsFunction: completePaths(&f),
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.BoolVarP(&o.keep, "no-create", "c", false, "do not make files that are not there")
	fl.BoolVarP(&o.atime, "access", "a", false, "the time of access only")
	fl.BoolVarP(&o.mtime, "modify", "m", false, "the time of change only")
	fl.BoolVar(&o.link, "no-dereference", false, "symbolic links themselves; implies -c")
	fl.StringVarP(&o.date, "date", "d", "", "use this `DATE` instead of now")
	fl.StringVarP(&o.stamp, "stamp", "t", "", "use `[[CC]YY]MMDDhhmm[.ss]` instead of now")
	fl.StringVarP(&o.reference, "reference", "r", "", "use the times of this `PATH`")
	a.add(cmd)
	return cmd
}

// settle finds the times that are meant.
func (o *touchOptions) settle(cmd *cobra.Command, f *urlFlag) error {
	given := 0
	for _, s := range []string{o.date, o.stamp, o.reference} {
		if s != "" {
			given++
		}
	}
	if given > 1 {
		return refuse("which time?", "Give at most one of -d, -t and -r")
	}
	if !o.atime && !o.mtime {
		o.atime, o.mtime = true, true
	}
	var at time.Time
	var err error
	switch {
	case o.date != "":
		at, err = parseDate(o.date, time.Now())
	case o.stamp != "":
		at, err = parseStamp(o.stamp, time.Now())
	case o.reference != "":
		return f.look(cmd, []string{o.reference}, func(fs *client.FS, path string) error {
			st, err := fs.Stat(cmd.Context(), path)
			o.at = [2]time.Time{st.Atime.Time(), st.Mtime.Time()}
			return err
		})
	}
	o.at = [2]time.Time{at, at}
	return err
}

func (o *touchOptions) touch(ctx context.Context, fs *client.FS, path string) error {
	err := o.set(ctx, fs, path)
	if errs.KindOf(err) != errs.NotFound {
		return err
	}
	if o.keep || o.link {
		return nil
	}
	if err := makeEmpty(ctx, fs, path); err != nil || o.at == [2]time.Time{} {
		return err
	}
	return o.set(ctx, fs, path)
}

func (o *touchOptions) set(ctx context.Context, fs *client.FS, path string) error {
	if o.at == [2]time.Time{} {
		now := fs.Touch
		if o.link {
			now = fs.Ltouch
		}
		return now(ctx, path, o.atime, o.mtime)
	}
	var atime, mtime time.Time
	if o.atime {
		atime = o.at[0]
	}
	if o.mtime {
		mtime = o.at[1]
	}
	set := fs.Chtimes
	if o.link {
		set = fs.Lchtimes
	}
	return set(ctx, path, atime, mtime)
}
