package main

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/client"
)

// clusters opens each cluster once, however many arguments lie on it.
type clusters struct {
	flag  *urlFlag
	conns map[string]*connection
}

func newClusters(f *urlFlag) *clusters {
	return &clusters{flag: f, conns: map[string]*connection{}}
}

// open finds the cluster that an argument lies on, and its path there.
func (s *clusters) open(ctx context.Context, arg string) (*client.FS, string, error) {
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
	return s.conns[p.base].fs, path.Clean(p.path), nil
}

// forget says goodbye where nothing was changed: that it was not heard changes nothing.
func (s *clusters) forget() {
	for _, c := range s.conns {
		c.close()
	}
}

// close says goodbye after changes. What was written and not told or synced yet is by then; so its
// error is one of the command.
func (s *clusters) close() error {
	var failed []error
	for _, c := range s.conns {
		failed = append(failed, c.finish())
	}
	return errors.Join(failed...)
}

// finish is close after something was written.
func (c *connection) finish() error {
	err := c.fs.Close()
	_ = c.providers.Close() // nothing is under way any more
	return err
}

// eachPath calls fn for every argument. One that fails does not keep the others from being done:
// each failure is told, and the command fails in the end. Where only one argument was given its
// error is the command's.
func eachPath(cmd *cobra.Command, s *clusters, args []string,
	fn func(fs *client.FS, path string) error) error {
	failed := 0
	for _, arg := range args {
		fs, at, err := s.open(cmd.Context(), arg)
		if err == nil {
			err = fn(fs, at)
		}
		switch {
		case err == nil:
			continue
		case len(args) == 1 || cmd.Context().Err() != nil:
			return err
		}
		failed++
		complain(cmd, err)
	}
	if failed > 0 {
		return &exitError{code: 1}
	}
	return nil
}

// complain tells an error that does not end the command.
func complain(cmd *cobra.Command, err error) {
	var said *exitError
	if errors.As(err, &said) && said.err == nil {
		return
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "sluice: "+explain(err))
}

// look runs fn for every argument of a command that changes nothing.
func (f *urlFlag) look(cmd *cobra.Command, args []string,
	fn func(fs *client.FS, path string) error) error {
	s := newClusters(f)
	defer s.forget()
	return eachPath(cmd, s, args, fn)
}
