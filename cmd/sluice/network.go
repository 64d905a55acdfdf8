package main

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/bench/tune"
	"github.com/sluice-storage/sluice/config"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
)

// providersEnv says which providers are used where no flag does.
const providersEnv = "SLUICE_PROVIDERS"

// progressEnv says who polls where no flag does.
const progressEnv = "SLUICE_PROGRESS"

// progressText is what people read about the ways of progress.
const progressText = "who looks for what has arrived (default $" + progressEnv + ", else any):\n" +
	"any     whoever waits: right for most\n" +
	"poll    whoever waits, spinning for 2 ms before it sleeps: least delay, where each busy " +
	"connection can have a core\n" +
	"thread  a thread for each connection, which wakes the others: for requests that take long"

// tuningEnv names a file that sluice bench tune has made, for processes that are not of a
// cluster's folder; see loadTuning for those that are.
const tuningEnv = "SLUICE_TUNING"

// providersFlag says which providers a process uses, who polls them, and how it is known there.
type providersFlag struct {
	list     string
	progress string
	secret   secretFlag
}

func (f *providersFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.list, "providers", "", "ways to reach each other that may be used "+
		"(default $"+providersEnv+", else "+strings.Join(peer.Names(), ",")+")")
	cmd.Flags().StringVar(&f.progress, "progress", "", progressText)
}

// way is the way of progress that was asked for.
func (f *providersFlag) way() (msg.Progress, error) {
	text := cmp.Or(f.progress, os.Getenv(progressEnv), msg.ProgressAny.String())
	var names []string
	for _, p := range []msg.Progress{msg.ProgressAny, msg.ProgressPoll, msg.ProgressThread} {
		if p.String() == text {
			return p, nil
		}
		names = append(names, p.String())
	}
	return 0, refuse("there is no way of progress "+text,
		"Choose of "+strings.Join(names, ", ")+", like --progress "+names[0])
}

// check finds what a child would refuse.
func (f *providersFlag) check() error {
	_, err := f.options(nil)
	return err
}

// names are the providers that were asked for.
func (f *providersFlag) names() ([]string, error) {
	list := f.list
	if list == "" {
		list = os.Getenv(providersEnv)
	}
	if list == "" {
		return peer.Names(), nil
	}
	asked := strings.Split(list, ",")
	for _, name := range asked {
		if !slices.Contains(peer.Names(), name) {
			return nil, refuse("there is no provider "+name,
				"Choose of "+strings.Join(peer.Names(), ",")+", like --providers tcp")
		}
	}
	if !slices.Contains(asked, plainProvider) {
		return nil, refuse("--providers "+list+": without tcp nobody is found",
			"Add it: --providers "+list+",tcp")
	}
	return asked, nil
}

// options are what peer.Open needs to know of the flag.
func (f *providersFlag) options(log *slog.Logger) (peer.Options, error) {
	names, err := f.names()
	if err != nil {
		return peer.Options{}, err
	}
	way, err := f.way()
	return peer.Options{Use: names, Progress: way, Logger: log}, err
}

// args are the flags for a child, which has the same environment.
func (f *providersFlag) args() []string {
	var args []string
	if f.list != "" {
		args = append(args, "--providers", f.list)
	}
	if f.progress != "" {
		args = append(args, "--progress", f.progress)
	}
	return args
}

// openClient opens the providers for a process that only dials, the cluster at a URL. log hears of
// those that are not to be had; nil: nobody does.
func openClient(f *providersFlag, url string, log *slog.Logger) (*peer.Providers, error) {
	opts, err := f.options(log)
	if err != nil {
		return nil, err
	}
	if opts.Secret, opts.Security, err = f.secret.client(url); err != nil {
		return nil, err
	}
	if name := os.Getenv(tuningEnv); name != "" {
		if opts.Limits, err = tune.Load(name); err != nil {
			return nil, hint(err, "Make it anew with: sluice bench tune --save %s   or unset $%s", name,
				tuningEnv)
		}
	}
	return peer.Open(opts)
}

// openServer opens them for one that listens.
// known is what this host proves itself by, where others are known by certificates.
func (c *cluster) openServer(f *providersFlag, known peer.Identity, log *slog.Logger) (
	*peer.Providers, error) {

	opts, err := f.options(log)
	if err != nil {
		return nil, err
	}
	if f.secret.trust {
		log.Warn(trustWarning)
	}
	opts.Listens = true
	if f.secret.keyed() {
		opts.Security = peer.Security(known, f.secret.security == string(config.Authenticated))
	} else {
		opts.Secret = &tcp.Secret{File: c.secretFile(), Optional: f.secret.trust}
	}
	if opts.Limits, err = loadTuning(c.dir); err != nil {
		return nil, err
	}
	return peer.Open(opts)
}

// closeLogged ends providers, or what else a process leaves last; log hears if that fails.
func closeLogged(p io.Closer, log *slog.Logger) {
	if err := p.Close(); err != nil && log != nil {
		log.Warn("the network did not close cleanly", "err", err)
	}
}

// pathMax is the longest path of a unix socket.
const pathMax = 107

// socket is where a process of the cluster is found by others on this host: a socket in the folder
// run, which belongs to the cluster's owner alone, or, if that path is too long for a socket, a
// name that is no file.
func (c *cluster) socket(process string) string {
	path := c.path("run", process+".sock")
	if len(path) <= pathMax && !strings.Contains(path, ",") {
		return path
	}
	return fmt.Sprintf("@sluice-%s-%s", c.cfg.ID, process)
}

// reason is the heart of a step's error, without the layers that it came through.
func reason(err error) string {
	for {
		e, ok := err.(*errs.Error)
		if !ok || e.Err == nil {
			return err.Error()
		}
		err = e.Err
	}
}
