package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/internal/supervise"
)

// askMax is how long a status waits for an answer: one that comes late is of no use.
const askMax = 3 * time.Second

// watchEvery is how often --watch looks.
const watchEvery = time.Second

// statusFlags are the choices of sluice status.
type statusFlags struct {
	dir    string
	at     urlFlag
	asJSON bool
	watch  bool
}

func newStatus() *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show a cluster: hosts, I/O servers, clients, space, versions, what is down",
		Long: `Shows the whole cluster, as its metadata service knows it: hosts with their roles, version
and how long their certificates last; I/O servers with their state (up, slow, down, leaving), how
often they were started, when they were heard of, their space, and how they are reached from here
and why not by something better; clients with their mounts and open files; counters. It works on
every host and client: --url, or the credential, says where the cluster is.

In a cluster's folder it begins with the processes that run there, their restarts and why. That
works while the cluster is down, too.

The exit code is 1 if something is down: a process, the metadata service, an I/O server or a host.
What was told to stop is leaving for a moment, and down then; what was removed is not shown.
Certificates, and clients of others, are shown to root and the owner of the cluster.`,
		Example: "  sluice status\n  sluice status --watch\n" +
			"  sluice status --url sluice://h1:9400 --json | jq .hosts\n" +
			"  sluice status --dir ./c --json | jq .servers",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			look, err := f.source(cmd)
			if err != nil {
				return err
			}
			if f.watch {
				return f.follow(cmd, look)
			}
			r, err := look(cmd.Context())
			if err != nil {
				return err
			}
			if f.asJSON {
				err = printJSON(cmd, r)
			} else {
				err = r.WriteText(cmd.OutOrStdout(), time.Now())
			}
			return statusCode(r, err)
		},
	}
	cmd.Flags().StringVar(&f.dir, "dir", defaultDir, "the cluster's folder, if there is one")
	cmd.Flags().BoolVar(&f.watch, "watch", false, "look again every second, until it is interrupted")
	f.at.add(cmd)
	addJSON(cmd, &f.asJSON, admin.Report{})
	return cmd
}

// statusCode is what a report means for the exit code.
func statusCode(r *admin.Report, err error) error {
	if err == nil && len(r.Down()) > 0 {
		return &exitError{code: 1}
	}
	return err
}

// source tells what is looked at: the folder that was named, or is there; or the cluster that the
// URL or the credential names.
func (f *statusFlags) source(cmd *cobra.Command) (func(context.Context) (*admin.Report, error),
	error) {
	remote := func(ctx context.Context) (*admin.Report, error) {
		r := newReport()
		r.URL = f.at.base()
		r.Running = r.ask(ctx, &f.at.by)
		return r.Report, nil
	}
	if cmd.Flags().Changed("url") && !cmd.Flags().Changed("dir") {
		return remote, nil
	}
	c, err := openCluster(f.dir)
	switch {
	case err == nil:
		return func(ctx context.Context) (*admin.Report, error) { return c.report(ctx, &f.at.by) }, nil
	case !cmd.Flags().Changed("dir") && f.at.known():
		return remote, nil
	}
	return nil, err
}

// known tells whether the user has said, somehow, where the cluster is.
func (f *urlFlag) known() bool {
	return f.url != "" || os.Getenv("SLUICE_URL") != "" || f.by.secret.cred.url() != ""
}

// follow shows reports until it is interrupted: in a terminal each in the place of the one before.
func (f *statusFlags) follow(cmd *cobra.Command,
	look func(context.Context) (*admin.Report, error)) error {
	out, ok := cmd.OutOrStdout().(*os.File)
	live := ok && !f.asJSON && isTerminal(out) && os.Getenv("TERM") != "dumb"
	if live {
		_, _ = out.WriteString(termEnter)
		defer func() { _, _ = out.WriteString(termLeave) }()
	}
	var last *admin.Report
	for {
		r, err := look(cmd.Context())
		if cmd.Context().Err() != nil && last != nil {
			return statusCode(last, nil)
		}
		if err == nil {
			last = r
			err = f.show(cmd.OutOrStdout(), r, live)
		}
		if err != nil {
			return err
		}
		if !sleep(cmd.Context(), watchEvery) {
			return statusCode(last, nil)
		}
	}
}

// show prints one report of several.
func (f *statusFlags) show(to io.Writer, r *admin.Report, live bool) error {
	if f.asJSON { // one in a line, so that a program can tell them apart as they come
		return json.NewEncoder(to).Encode(r)
	}
	var b strings.Builder
	if err := r.WriteText(&b, time.Now()); err != nil {
		return err
	}
	text := b.String()
	if live {
		text = termHome + strings.ReplaceAll(text, "\n", termClear+"\n") + termRest
	} else {
		text = time.Now().Format(time.DateTime) + "\n" + text + "\n"
	}
	_, err := io.WriteString(to, text)
	return err
}

// report gathers what can be found out. Servers that do not answer are part of the report, not an
// error.
func (c *cluster) report(ctx context.Context, by *providersFlag) (*admin.Report, error) {
	r := newReport()
	r.Cluster, r.Dir, r.Local = c.cfg.ID, c.dir, true
	held, err := supervise.Held(c.lockFile())
	if err != nil {
		return nil, err
	}
	r.Running = held
	state, err := supervise.ReadState(c.stateFile())
	if err == nil {
		r.PID, r.Since, r.Processes = state.PID, state.Started, state.Processes
	}
	if !held {
		return r.Report, nil
	}
	r.Admin = c.adminAddrs()
	up := c.readUp()
	r.URL, r.Mount = up.URL, up.Mount
	if r.URL == "" {
		r.Problems = append(r.Problems, "the cluster is starting or stopping")
		return r.Report, nil
	}
	if up.TrustLocal {
		r.Problems = append(r.Problems, trustWarning)
	}
	r.ask(ctx, by.within(c))
	return r.Report, nil
}
