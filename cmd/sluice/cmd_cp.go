package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/client"
)

func newCp() *cobra.Command {
	const usual = "stream" // what is copied is seldom read again soon
	var f urlFlag
	opts := copyOptions{}
	var uses wayFlag
	cmd := &cobra.Command{
		Use:   "cp SOURCE... DESTINATION",
		Short: "Copy files into, out of and within a cluster",
		Long: `Copies files, and with -r directories. A path on the cluster begins with "sluice:"; any
other path is then on this host. Where no path begins with it, those that begin with a slash
are on the cluster. Files are copied several at once, large ones in several pieces at once.`,
		Example: "  sluice cp data.bin /data.bin\n" +
			"  sluice cp -r sluice://127.0.0.1:9400/results ./results",
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if opts.way, err = uses.parse(usual); err != nil {
				return err
			}
			return runCp(cmd, &f, args, opts)
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&opts.recursive, "recursive", "r", false, "copy directories too")
	cmd.Flags().BoolVar(&opts.sync, "sync", false, "return when the copies are on stable storage")
	cmd.Flags().IntVarP(&opts.workers, "jobs", "j", 4, "how many files are copied at once")
	uses.add(cmd, usual)
	cmd.Flags().BoolVar(&opts.quiet, "quiet", false, "show no progress")
	return cmd
}

// sides opens each cluster once, however many arguments lie on it.
type sides struct {
	flag  *urlFlag
	way   way
	conns map[string]*connection
}

func (s *sides) close() {
	for _, c := range s.conns {
		c.close()
	}
}

// side finds the tree that an argument lies in, and its path there.
func (s *sides) side(ctx context.Context, arg string) (tree, string, error) {
	if !strings.HasPrefix(arg, scheme) {
		return hostTree{}, filepath.Clean(arg), nil
	}
	p, err := s.flag.parse(arg)
	if err != nil {
		return nil, "", err
	}
	if s.conns[p.base] == nil {
		c, err := dialBy(ctx, p.base, &s.flag.by, client.Options{WaitMax: toolMax})
		if err != nil {
			return nil, "", err
		}
		s.conns[p.base] = c
	}
	return clusterTree{s.conns[p.base].fs, s.way}, path.Clean(p.path), nil
}

func runCp(cmd *cobra.Command, f *urlFlag, args []string, opts copyOptions) error {
	if opts.workers < 1 || opts.workers > 256 {
		return refuse(fmt.Sprintf("-j %d", opts.workers), "Choose a number from 1 to 256")
	}
	args, err := markCluster(args)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	s := &sides{flag: f, way: opts.way, conns: map[string]*connection{}}
	defer s.close()
	last := len(args) - 1
	dst, dstPath, err := s.side(ctx, args[last])
	if err != nil {
		return err
	}
	into, err := isDir(ctx, dst, dstPath)
	if err != nil {
		return err
	}
	if !into && (last > 1 || strings.HasSuffix(args[last], "/")) {
		return refuse(args[last]+" is no directory", "Make it first: sluice mkdir, or mkdir")
	}
	c := newCopier(dst, opts, newProgress(cmd, opts.quiet))
	for _, arg := range args[:last] {
		src, srcPath, err := s.side(ctx, arg)
		if err != nil {
			return err
		}
		to := dstPath
		if into {
			to = path.Join(dstPath, path.Base(srcPath))
		}
		if err := c.copy(ctx, src, srcPath, to); err != nil {
			return c.finish(err)
		}
	}
	return c.finish(nil)
}

// markCluster writes "sluice:" before the paths that are on the cluster although they do not say
// so.
func markCluster(args []string) ([]string, error) {
	marked, absolute := make([]string, len(args)), 0
	for i, arg := range args {
		if strings.HasPrefix(arg, scheme) {
			return args, nil
		}
		marked[i] = arg
		if strings.HasPrefix(arg, "/") {
			marked[i] = scheme + arg
			absolute++
		}
	}
	if absolute == 0 || absolute == len(args) {
		return nil, refuse("which of these paths is on the cluster?",
			"Write sluice:/PATH for it, like: sluice cp data.bin sluice:/data.bin")
	}
	return marked, nil
}

func isDir(ctx context.Context, t tree, name string) (bool, error) {
	n, err := t.stat(ctx, name)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil && n.mode.IsDir(), err
}
