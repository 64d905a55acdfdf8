package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/layout"
)

const cpText = `Copies files, and with -r directories. A path on the cluster begins with
"sluice:"; any other path is then on this host. Where no path begins with it, those that begin
with a slash are on the cluster. Files are copied several at once, large ones in several pieces at
once.

What cannot be copied is told and counted, the rest is copied, and the exit status is 1. Holes stay
holes. Symbolic links are followed, with -r copied as links. With -a modes, owners, times, extended
attributes, links, fifos and devices are kept.

A destination that exists is overwritten in place: it stays the same inode with the same names,
rights and owner, and whoever reads it meanwhile sees old and new bytes. With --atomic the copy is
made beside it, as .NAME.sluice-part, and takes its name when it is complete.

Ctrl-C leaves what is complete, and unfinished files as far as they got, which are named. The same
command with --resume goes on: a file that is there with the size and the time of change of its
original is taken for finished (-p or -a keep times); of any other that is there, every byte is read
and compared with the original, in pieces of 4 MiB, and only pieces that differ or are missing are
written; what is behind the end is cut off. Nothing is taken from a name or a length alone.

New files are striped as their directory says (sluice layout), with -a as their originals, or as
--unit, --width and --pool say.

--verify syncs every copy, reads it back, past the page cache of this host or the caches of the
I/O servers, and compares the SHA-256 of each piece with that of what was read from the original.`

func newCp() *cobra.Command {
	const usual = "stream" // what is copied is seldom read again soon
	var f urlFlag
	var flags cpFlags
	var uses wayFlag
	var how policyFlags
	cmd := &cobra.Command{
		Use:   "cp SOURCE... DESTINATION",
		Short: "Copy files into, out of and within a cluster",
		Long:  cpText,
		Example: "  sluice cp data.bin /data.bin\n" +
			"  sluice cp -r sluice://127.0.0.1:9400/results ./results\n" +
			"  sluice cp -a --resume --verify /srv/images sluice:/images\n" +
			"  sluice cp --width all --unit 4M huge.img sluice:/scratch/huge.img\n" +
			"  sluice cp -r --dry-run tree sluice:/tree",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts, err := flags.options()
			if err != nil {
				return err
			}
			if opts.way, err = uses.parse(usual); err != nil {
				return err
			}
			if opts.policy, err = how.parse(); err != nil {
				return err
			}
			return runCp(cmd, &f, args, &flags, opts)
		},
		ValidArgsFunction: completeBoth(&f),
	}
	f.add(cmd)
	flags.add(cmd)
	uses.add(cmd, usual)
	how.add(cmd, &f)
	return cmd
}

// cpFlags are the options as the user wrote them.
type cpFlags struct {
	copyOptions
	archive, usual, links, plain bool
	preserve                     []string
	into                         string
}

func (f *cpFlags) add(cmd *cobra.Command) {
	fl, o := cmd.Flags(), &f.copyOptions
	fl.BoolVarP(&o.recursive, "recursive", "r", false, "copy directories too")
	addAlso(cmd, &o.recursive, "R")
	fl.BoolVarP(&f.archive, "archive", "a", false,
		"keep everything: -r -P --preserve=all, fifos and devices, too")
	fl.BoolVarP(&f.usual, "keep", "p", false, "as --preserve=mode,ownership,timestamps")
	fl.StringSliceVar(&f.preserve, "preserve", nil,
		"keep `WHAT`: mode, ownership, timestamps, links, xattr, all")
	fl.Lookup("preserve").NoOptDefVal = "mode,ownership,timestamps"
	fl.BoolVarP(&o.follow, "dereference", "L", false, "follow all symbolic links")
	fl.BoolVarP(&o.noFollow, "no-dereference", "P", false, "copy symbolic links as links")
	fl.BoolVarP(&f.links, "keep-links", "d", false, "as -P --preserve=links")
	fl.BoolVarP(&o.noClobber, "no-clobber", "n", false, "leave what is there alone")
	fl.BoolVarP(&o.update, "update", "u", false, "leave what is there and not older alone")
	fl.BoolVarP(&o.force, "force", "f", false, "remove a destination that cannot be opened")
	fl.BoolVarP(&f.plain, "no-target-directory", "T", false,
		"DESTINATION is the new name, even if it is a directory")
	fl.StringVarP(&f.into, "target-directory", "t", "", "copy all SOURCEs into this `DIRECTORY`")
	fl.BoolVar(&o.resume, "resume", false, "go on with copies that were interrupted: see above")
	fl.BoolVar(&o.verify, "verify", false, "read copies back and compare checksums")
	fl.BoolVar(&o.atomic, "atomic", false, "let copies take their names when they are complete")
	fl.StringVar(&o.sparse, "sparse", "auto",
		"holes: `WHEN` auto keeps them, always makes some of zeroes, too, never fills them")
	fl.BoolVar(&o.dry, "dry-run", false, "only show what would be done")
	fl.BoolVar(&o.sync, "sync", false, "return when the copies are on stable storage")
	fl.IntVarP(&o.workers, "jobs", "j", 4, "how many files are copied at once")
	fl.BoolVarP(&o.verbose, "verbose", "v", false, "show what is copied")
	fl.BoolVarP(&o.quiet, "quiet", "q", false, "show no progress")
	addJSON(cmd, &o.asJSON, copySum{})
	completeWords(cmd, "sparse", "auto", "always", "never")
	completeWords(cmd, "preserve", preserveWords()...)
}

func preserveWords() []string {
	return []string{"mode", "ownership", "timestamps", "links", "xattr", "all"}
}

// options turns flags that stand for several into those.
func (f *cpFlags) options() (copyOptions, error) {
	o := f.copyOptions
	keep := append([]string{}, f.preserve...)
	if f.archive {
		o.recursive, o.noFollow, o.specials, o.lenient = true, !o.follow, true, true
		keep = append(keep, "all")
	}
	if f.usual {
		keep = append(keep, "mode", "ownership", "timestamps")
	}
	if f.links {
		o.noFollow = true
		keep = append(keep, "links")
	}
	for _, word := range keep {
		if !slices.Contains(preserveWords(), word) {
			return o, refuse("cp cannot preserve "+word,
				"Choose of "+strings.Join(preserveWords(), ", "))
		}
		all := word == "all"
		o.keepMode = o.keepMode || all || word == "mode"
		o.keepOwner = o.keepOwner || all || word == "ownership"
		o.keepTime = o.keepTime || all || word == "timestamps"
		o.keepLinks = o.keepLinks || all || word == "links"
		o.keepXattrs = o.keepXattrs || all || word == "xattr"
	}
	switch {
	case o.workers < 1 || o.workers > 256:
		return o, refuse(fmt.Sprintf("-j %d", o.workers), "Choose a number from 1 to 256")
	case !slices.Contains([]string{"auto", "always", "never"}, o.sparse):
		return o, refuse("--sparse="+o.sparse, "Choose of auto, always, never")
	case o.follow && o.noFollow:
		return o, refuse("-L and -P contradict each other", "Leave one out")
	}
	return o, nil
}

// sides are both ends of a copy.
type sides struct {
	*clusters
	way    way
	policy layout.Policy
}

// side finds the tree that an argument lies in, and its path there.
func (s *sides) side(ctx context.Context, arg string) (tree, string, error) {
	if !strings.HasPrefix(arg, scheme) {
		return hostTree{}, filepath.Clean(arg), nil
	}
	fs, at, err := s.open(ctx, arg)
	if err != nil {
		return nil, "", err
	}
	return clusterTree{fs, s.way, s.policy}, at, nil
}

func runCp(cmd *cobra.Command, f *urlFlag, args []string, flags *cpFlags, opts copyOptions) error {
	if flags.into != "" {
		args = append(args, flags.into)
	}
	if len(args) < 2 {
		return refuse("the destination is missing", "See: sluice help cp")
	}
	args, err := markCluster(args)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	s := &sides{clusters: newClusters(f), way: opts.way, policy: opts.policy}
	sources, last := args[:len(args)-1], args[len(args)-1]
	dst, dstPath, err := s.side(ctx, last)
	into := false
	if err == nil && !flags.plain {
		into, err = isDir(ctx, dst, dstPath)
	}
	if _, onCluster := dst.(clusterTree); err == nil && !opts.policy.IsZero() && !onCluster {
		err = refuse("--unit, --width and --pool are for copies on a cluster", "Leave them out")
	}
	if err == nil && !into && (len(sources) > 1 || flags.into != "" || strings.HasSuffix(last, "/") &&
		!opts.recursive) {
		err = refuse(last+" is no directory", "Make it first: sluice mkdir, or mkdir")
	}
	if err != nil {
		s.forget()
		return err
	}
	c := newCopier(dst, opts, newProgress(cmd, opts.quiet || opts.dry))
	c.complain = func(_ string, err error) { complain(cmd, err) }
	if opts.verbose {
		c.tell = teller(cmd, opts.asJSON)
	}
	for _, arg := range sources {
		src, from, err := s.side(ctx, arg)
		if err != nil {
			c.fail(arg, err)
			continue
		}
		to := dstPath
		if into {
			to = path.Join(dstPath, lastPart(arg, from))
		}
		c.copy(ctx, src, from, to)
	}
	sum := c.finish(ctx)
	if err := s.close(); err != nil { // what was written is not safe
		c.fail(last, err)
	}
	return endCp(cmd, sum, &opts)
}

// lastPart is the name that a source gets in a directory. One that ends in "." is copied into the
// directory itself, as with cp(1).
func lastPart(arg, cleaned string) string {
	if base := path.Base("/" + arg[strings.LastIndexByte(arg, '/')+1:]); base == "." ||
		base == ".." || arg == "." || strings.HasSuffix(arg, "/.") {
		return "."
	}
	return path.Base(cleaned)
}

// teller prints what is copied, with -v. With --json the document stays alone.
func teller(cmd *cobra.Command, asJSON bool) func(from, to string) {
	var out io.Writer = cmd.OutOrStdout()
	if asJSON {
		out = cmd.ErrOrStderr()
	}
	return func(from, to string) { fmt.Fprintf(out, "'%s' -> '%s'\n", from, to) }
}

// endCp tells what was done, and turns it into an exit status.
func endCp(cmd *cobra.Command, sum *copySum, opts *copyOptions) error {
	if opts.asJSON {
		if err := printJSON(cmd, sum); err != nil {
			return err
		}
	} else {
		for _, p := range sum.Plan {
			fmt.Fprintf(cmd.OutOrStdout(), "%s '%s' -> '%s'\n", p.Action, p.From, p.To)
		}
	}
	switch {
	case sum.Interrupted:
		for _, name := range sum.Unfinished {
			fmt.Fprintln(cmd.ErrOrStderr(), "sluice: unfinished: "+name)
		}
		return &exitError{code: 130, err: refuse(fmt.Sprintf(
			"interrupted after %s (%s); %s unfinished", counted(sum.Files, "file", "files"),
			admin.Bytes(sum.Bytes), counted(int64(len(sum.Unfinished)), "is", "are")),
			"What is complete stays. Go on with the same command and --resume")}
	case len(sum.Failed) > 1:
		return fmt.Errorf("%d of these could not be copied; %s could", len(sum.Failed),
			counted(sum.Files+sum.Links+sum.Specials, "file", "files"))
	case len(sum.Failed) == 1:
		return &exitError{code: 1}
	}
	return nil
}

// markCluster writes "sluice:" before the paths that are on the cluster although they do not say
// so.
func markCluster(args []string) ([]string, error) {
	marked, onCluster := make([]string, len(args)), 0
	for i, arg := range args {
		if strings.HasPrefix(arg, scheme) {
			return args, nil
		}
		marked[i] = arg
		if strings.HasPrefix(arg, "/") {
			marked[i] = scheme + arg
			onCluster++
		}
	}
	if onCluster == 0 || onCluster == len(args) {
		return nil, refuse("which of these paths is on the cluster?",
			"Write sluice:/PATH for it, like: sluice cp data.bin sluice:/data.bin")
	}
	return marked, nil
}

// absolute is a path of this host from the root, or as it is if nobody knows where we are.
func absolute(name string) string {
	abs, err := filepath.Abs(name)
	if err != nil {
		return name
	}
	return abs
}

func isDir(ctx context.Context, t tree, name string) (bool, error) {
	n, err := t.stat(ctx, name)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil && n.mode.IsDir(), err
}
