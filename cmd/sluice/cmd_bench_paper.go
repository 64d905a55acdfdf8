package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/paper"
	"github.com/sluice-storage/sluice/client"
)

// The time that an experiment may take, if nobody says otherwise.
const (
	paperWithin = 40 * time.Second
	paperQuick  = 3 * time.Second
)

// paperFlags are those of bench paper.
type paperFlags struct {
	benchFlags
	plots string
}

func newBenchPaper() *cobra.Command {
	var f paperFlags
	cmd := &cobra.Command{
		Use:   "paper ls | all | NAME...",
		Short: "Repeat the experiments of the papers that sluice comes from",
		Long: `Repeats tables and figures of five papers, each by its letter and number: P8 is figure 8
of the PVFS paper, MT1 table I of the message paper. What the paper reported stands beside what is
measured here, and what differs is said: mostly that everything runs on one host.

  M  message middleware over system-area networks
  P  PVFS over InfiniBand
  U  Unifier: one cache for storage and network
  X  EXIO: noncontiguous I/O over RDMA
  G  gmblock: block devices with a direct path from disk to network

ls lists them, and says which cannot be run here and why. They are cases of the other benches, and
some of their own: an experiment takes less than a minute. With --markdown a page of all of them is
written; sections of experiments that are not run stay as they are.`,
		Example: `  sluice bench paper ls
  sluice bench paper P13
  sluice bench paper M7 X5 --plots plots
  sluice bench paper all --markdown docs/papers.md --plots docs/papers`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.benchPaper(args) },
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion,
			cobra.ShellCompDirective) {
			words := []cobra.Completion{"ls", "all"}
			for _, e := range paper.All() {
				words = append(words, cobra.CompletionWithDesc(e.Name, e.Title))
			}
			return words, cobra.ShellCompDirectiveNoFileComp
		},
	}
	f.cmd = cmd
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.BoolVar(&f.quick, "quick", false, "seconds for each experiment; figures are less steady")
	fl.DurationVar(&f.within, "within", 0, "about how long an experiment may take, each (default 40s)")
	fl.StringVar(&f.plots, "plots", "", "also draw each into this `FOLDER`, as NAME.svg")
	fl.StringVar(&f.markdown, "markdown", "", "also write the page of all experiments: `FILE.md`")
	addJSON(cmd, &f.json, []paper.Outcome{})
	return cmd
}

func (f *paperFlags) benchPaper(args []string) error {
	if len(args) == 1 && args[0] == "ls" {
		return f.listPapers()
	}
	var chosen []paper.Experiment
	for _, name := range args {
		e, ok := paper.Find(name)
		switch {
		case len(args) == 1 && name == "all":
			chosen = paper.All()
		case !ok:
			return refuse("there is no experiment "+name, "See: sluice bench paper ls")
		default:
			chosen = append(chosen, e)
		}
	}
	if err := f.check(filepath.Join(f.plots, "x")); err != nil {
		return err
	}
	outcomes := []paper.Outcome{}
	var failed error
	for i := range chosen {
		o, err := f.experiment(&chosen[i])
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", chosen[i].Name, err))
			if f.cmd.Context().Err() != nil {
				break
			}
			continue
		}
		outcomes = append(outcomes, o)
		if f.json {
			continue
		}
		if err := outcomes[len(outcomes)-1].Write(f.cmd.OutOrStdout()); err != nil {
			return err
		}
		fmt.Fprintln(f.cmd.OutOrStdout())
	}
	if f.json {
		failed = errors.Join(failed, printJSON(f.cmd, outcomes))
	}
	return errors.Join(failed, f.writePage(outcomes))
}

func (f *paperFlags) listPapers() error {
	if !f.json {
		return paper.WriteList(f.cmd.OutOrStdout())
	}
	list := []paper.Outcome{}
	for _, e := range paper.All() {
		list = append(list, e.Outcome(nil, "sluice bench paper "+e.Name))
	}
	return printJSON(f.cmd, list)
}

// experiment runs all parts of one, and draws it.
func (f *paperFlags) experiment(e *paper.Experiment) (paper.Outcome, error) {
	command := "sluice bench paper " + e.Name
	if f.quick {
		command += " --quick"
	} else if f.within > 0 {
		command += " --within " + f.within.String()
	}
	var rows []bench.Row
	for _, p := range e.Parts {
		if err := f.part(&p, len(e.Parts), func(more []bench.Row) {
			rows = append(rows, more...)
		}); err != nil {
			return paper.Outcome{}, err
		}
	}
	o := e.Outcome(rows, command)
	if f.plots == "" || len(rows) == 0 {
		return o, nil
	}
	name := filepath.Join(f.plots, e.Name+".svg")
	about := bench.About{Title: e.Names() + ": " + e.Title, Machine: bench.Machine(),
		Command: command}
	o.Plot = name
	if f.markdown != "" {
		if rel, err := filepath.Rel(filepath.Dir(f.markdown), name); err == nil {
			o.Plot = rel
		}
	}
	return o, os.WriteFile(name, bench.Plot(about, rows), 0o644)
}

// part runs some cases of a bench.
func (f *paperFlags) part(p *paper.Part, of int, keep func([]bench.Row)) error {
	within := f.within
	if within == 0 {
		within = paperWithin
		if f.quick {
			within = paperQuick
		}
	}
	c := caseFlags{benchFlags: benchFlags{cmd: f.cmd, quick: true, within: within / time.Duration(of),
		cases: p.Cases, keep: keep}, providers: p.Providers, sweeps: true}
	switch p.Bench {
	case "fabric":
		return c.benchFabric(p.Providers)
	case "net":
		return c.benchNet()
	case "iod":
		return c.benchIod("")
	case "nbd":
		n := nbdBenchFlags{benchFlags: c.benchFlags, only: p.Cases, servers: p.Providers}
		n.rounds, n.time = 3, 500*time.Millisecond
		if f.quick {
			n.rounds, n.time = 1, 200*time.Millisecond
		}
		return n.benchNBD()
	}
	return f.files(&c)
}

// files runs cases of the client library with a cluster in memory.
func (f *paperFlags) files(c *caseFlags) (err error) {
	dir, remove, err := tempIn("")
	if err != nil {
		return err
	}
	defer remove()
	ctx := f.cmd.Context()
	url, stop, err := startBenchCluster(ctx, filepath.Join(dir, "cluster"), "", false)
	if err != nil {
		return err
	}
	defer stop()
	var conns []*connection
	defer func() {
		for _, conn := range conns {
			_ = conn.providers.Close() // who dialled has closed the client
		}
	}()
	own := paper.Files{Providers: []string{plainProvider, shmProvider},
		Dial: func(ctx context.Context, provider string) (*client.FS, error) {
			list := []string{provider}
			if provider != plainProvider {
				list = append(list, plainProvider)
			}
			conn, err := dialBy(ctx, url, &providersFlag{list: strings.Join(list, ",")},
				client.Options{})
			if err != nil {
				return nil, err
			}
			conns = append(conns, conn)
			return conn.fs, nil
		}}
	return c.benchFlags.measure(bench.Budget{Rounds: 3, Round: 300 * time.Millisecond}, own.Cases())
}

// writePage writes the page of all experiments.
func (f *paperFlags) writePage(outcomes []paper.Outcome) error {
	if f.markdown == "" {
		return nil
	}
	old, err := os.ReadFile(f.markdown)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	return os.WriteFile(f.markdown, []byte(paper.Page(string(old), outcomes)), 0o644)
}
