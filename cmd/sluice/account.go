package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/meta"
)

// deed is one thing that a command has done.
type deed struct {
	Action string `json:"action"`
	Path   string `json:"path"`
	To     string `json:"to,omitempty"`
}

// failure is one thing that it could not do.
type failure struct {
	Path  string `json:"path"`
	Error string `json:"error"`
}

// accounted is what a command that changes names or attributes prints with --json.
type accounted struct {
	Done   []deed    `json:"done"`
	Failed []failure `json:"failed"`
}

// account tells what a command that changes things has done: nothing unless asked, a line for each
// deed with -v, one document with --json. What fails is told at once, and the rest is done.
type account struct {
	cmd             *cobra.Command
	verbose, asJSON bool
	sum             accounted
}

// add adds the flags; it is called while the command is made.
func (a *account) add(cmd *cobra.Command) {
	a.cmd = cmd
	cmd.Flags().BoolVarP(&a.verbose, "verbose", "v", false, "say what is done")
	addJSON(cmd, &a.asJSON, accounted{})
	a.sum = accounted{Done: []deed{}, Failed: []failure{}}
}

// did notes a deed.
func (a *account) did(d deed) {
	if a.asJSON {
		a.sum.Done = append(a.sum.Done, d)
	}
	if !a.verbose {
		return
	}
	out := a.cmd.OutOrStdout()
	if a.asJSON {
		out = a.cmd.ErrOrStderr() // the document stays alone
	}
	if d.To == "" {
		fmt.Fprintf(out, "%s '%s'\n", d.Action, d.Path)
	} else {
		fmt.Fprintf(out, "%s '%s' -> '%s'\n", d.Action, d.Path, d.To)
	}
}

// failed notes what could not be done.
func (a *account) failed(path string, err error) {
	a.sum.Failed = append(a.sum.Failed, failure{path, err.Error()})
	complain(a.cmd, err)
}

// run calls fn for every argument, says goodbye, and prints the account. An error of fn that was
// not noted yet is.
func (a *account) run(f *urlFlag, args []string, fn func(fs *client.FS, path string) error) error {
	s := newClusters(f)
	for _, arg := range args {
		fs, at, err := s.open(a.cmd.Context(), arg)
		if err == nil {
			err = fn(fs, at)
		}
		if err != nil {
			a.failed(arg, err)
		}
		if a.cmd.Context().Err() != nil {
			break
		}
	}
	return a.end(s)
}

// end says goodbye and prints the document. That something failed was told.
func (a *account) end(s *clusters) error {
	if err := s.close(); err != nil {
		a.failed("", err)
	}
	if a.asJSON {
		if err := printJSON(a.cmd, a.sum); err != nil {
			return err
		}
	}
	if len(a.sum.Failed) > 0 {
		return &exitError{code: 1}
	}
	return a.cmd.Context().Err()
}

// tree calls fn for root and everything below it, a directory before what it holds: what is given
// to it counts when it is read. What fails is noted, and the rest is done.
func (a *account) tree(ctx context.Context, fs *client.FS, root string,
	fn func(path string, attr *meta.Attr) error) error {
	return walkTree(ctx, fs, root, func(e visit) error {
		switch {
		case e.err != nil:
			a.failed(e.path, e.err)
		case !e.leave:
			if err := fn(e.path, &e.attr); err != nil {
				a.failed(e.path, err)
			}
		}
		return nil
	})
}
