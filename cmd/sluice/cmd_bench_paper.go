package main

import (
	"context"
	"encoding/json"
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

// The time that experiments may take, if nobody says otherwise.
const (
	paperEach  = 40 * time.Second
	paperQuick = 3 * time.Second
	paperAll   = 11 * time.Minute
)

// paperFlags are those of bench paper.
type paperFlags struct {
	benchFlags
	plots string

	measured map[string][]bench.Row // of the experiments so far
	notes    []string               // what was left out of the one that runs
}

func newBenchPaper() *cobra.Command {
	var f paperFlags
	cmd := &cobra.Command{
		Use:   "paper ls | all | NAME...",
		Short: "Repeat the experiments of the papers that sluice comes from",
		Long: `Repeats tables and figures of five papers, each by its letter and number: P8 is figure 8
of the PVFS paper, MT1 table I of the message paper. What the paper reported stands beside what is
measured here, with whether its shape came out: who wins, and where that changes. What differs is
said: mostly that everything runs on one host.

  M  message middleware over system-area networks
  P  PVFS over InfiniBand
  U  Unifier: one cache for storage and network
  X  EXIO: noncontiguous I/O over RDMA
  G  gmblock: block devices with a direct path from disk to network

ls lists them, and says which cannot be run here and why. They are cases of the other benches, and
some of their own. One takes 40 seconds, all of them 11 minutes; what there was no time for is said
at the end. With --markdown a page of all of them is written; sections of experiments that are not
run stay as they are, and so do those that need a device that this host lacks. With --plots each is
drawn as NAME.svg, and its figures are in NAME.json.`,
		Example: `  sluice bench paper ls
  sluice bench paper P13
  sluice bench paper M7 X5 --plots plots
  sluice bench paper all --markdown docs/papers.md --plots docs/papers --within 12m`,
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
	fl.DurationVar(&f.within, "within", 0,
		"end within about this `TIME`, all experiments together (default 40s each, at most 11m)")
	fl.StringVar(&f.plots, "plots", "",
		"also draw each into this `FOLDER`, as NAME.svg, and keep its figures as NAME.json")
	fl.StringVar(&f.markdown, "markdown", "", "also write the page of all experiments: `FILE.md`")
	addJSON(cmd, &f.json, []paper.Outcome{})
	return cmd
}

func (f *paperFlags) benchPaper(args []string) error {
	if len(args) == 1 && args[0] == "ls" {
		return f.listPapers()
	}
	chosen := allPapers()
	if len(args) != 1 || args[0] != "all" {
		chosen = nil
		for _, name := range args {
			e, ok := paper.Find(name)
			if !ok {
				return refuse("there is no experiment "+name, "See: sluice bench paper ls")
			}
			chosen = append(chosen, e.On(verbsMissing() == ""))
		}
	}
	if err := f.check(filepath.Join(f.plots, "x")); err != nil {
		return err
	}
	f.measured = map[string][]bench.Row{}
	outcomes, failed := f.runAll(chosen)
	if f.json {
		failed = errors.Join(failed, printJSON(f.cmd, outcomes))
	}
	return errors.Join(failed, f.writePage(outcomes))
}

// allPapers are the experiments as they are on this host.
func allPapers() []paper.Experiment {
	all, device := paper.All(), verbsMissing() == ""
	for i := range all {
		all[i] = all[i].On(device)
	}
	return all
}

// total is how long all of them may take.
func (f *paperFlags) total(n int) time.Duration {
	switch {
	case f.within > 0:
		return f.within
	case f.quick:
		return time.Duration(n) * paperQuick
	}
	return min(time.Duration(n)*paperEach, paperAll)
}

// runAll runs experiments in the time that there is: each has its share of what is left. What comes
// when nothing is left is not run, and so said at the end.
func (f *paperFlags) runAll(chosen []paper.Experiment) (outcomes []paper.Outcome, failed error) {
	outcomes = []paper.Outcome{}
	runnable, weight := 0, 0
	for i := range chosen {
		if f.needs(&chosen[i]) {
			runnable++
			weight += chosen[i].Weight()
		}
	}
	begin := time.Now()
	end := begin.Add(f.total(runnable))
	var skipped []string
	for i := range chosen {
		e := &chosen[i]
		left := time.Until(end)
		fmt.Fprintf(f.cmd.ErrOrStderr(), "sluice: bench paper: %d of %d: %s, at most %s left\n", i+1,
			len(chosen), e.Name, max(left, 0).Round(time.Second))
		if e.CannotBe != "" {
			skipped = append(skipped, e.Names()+": "+e.CannotBe)
		}
		share := time.Duration(0)
		if f.needs(e) {
			share = left * time.Duration(e.Weight()) / time.Duration(max(weight, 1))
			weight -= e.Weight()
			if left <= 0 {
				skipped = append(skipped, e.Names()+": the time was over")
				continue
			}
		}
		o, err := f.experiment(e, share)
		if err == nil && !f.json {
			err = o.Write(f.cmd.OutOrStdout())
			fmt.Fprintln(f.cmd.OutOrStdout())
		}
		if err != nil {
			skipped = append(skipped, e.Names()+": "+err.Error())
			failed = errors.Join(failed, fmt.Errorf("%s: %w", e.Name, err))
			if f.cmd.Context().Err() != nil {
				break
			}
			continue
		}
		outcomes = append(outcomes, o)
	}
	for _, text := range skipped {
		f.note("not run: " + text)
	}
	f.note(fmt.Sprintf("%d experiments in %s", len(outcomes)-len(chosen)+runnable,
		time.Since(begin).Round(time.Second)))
	return outcomes, failed
}

// needs tells whether an experiment has to be measured: some cannot be, and the rows of others are
// there already.
func (f *paperFlags) needs(e *paper.Experiment) bool {
	return e.CannotBe == "" && f.measured[e.Same] == nil
}

func (f *paperFlags) listPapers() error {
	if !f.json {
		return paper.WriteList(f.cmd.OutOrStdout(), allPapers())
	}
	list := []paper.Outcome{}
	for _, e := range allPapers() {
		list = append(list, e.Outcome(nil, "sluice bench paper "+e.Name))
	}
	return printJSON(f.cmd, list)
}

// experiment runs all parts of one, draws it, and keeps its figures.
func (f *paperFlags) experiment(e *paper.Experiment, within time.Duration) (paper.Outcome, error) {
	command := "sluice bench paper " + e.Name
	rows := f.measured[e.Same]
	f.notes = nil
	if f.needs(e) {
		command += " --within " + max(within, time.Second).Round(time.Second).String()
		for i := range e.Parts {
			if err := f.part(&e.Parts[i], within/time.Duration(len(e.Parts)),
				func(more []bench.Row) { rows = append(rows, more...) }); err != nil {
				return paper.Outcome{}, err
			}
		}
		f.measured[e.Name] = rows
	} else if e.CannotBe == "" {
		command = "sluice bench paper " + e.Same + " " + e.Name
	}
	o := e.Outcome(rows, command)
	o.LeftOut = append(o.LeftOut, f.notes...)
	if f.plots == "" || len(rows) == 0 {
		return o, nil
	}
	return o, f.keepFigures(&o)
}

// keepFigures writes the drawing and the figures of an outcome.
func (f *paperFlags) keepFigures(o *paper.Outcome) error {
	drawing := filepath.Join(f.plots, o.Name+".svg")
	data := filepath.Join(f.plots, o.Name+".json")
	o.Plot, o.Data = drawing, data
	if f.markdown != "" {
		from := filepath.Dir(f.markdown)
		if rel, err := filepath.Rel(from, drawing); err == nil {
			o.Plot = filepath.ToSlash(rel)
			o.Data = strings.TrimSuffix(o.Plot, ".svg") + ".json"
		}
	}
	kept := *o
	if measured := f.measured[o.Name]; measured == nil {
		kept.Rows = nil // they are in another one's
	}
	text, err := json.Marshal(kept)
	return errors.Join(err, os.WriteFile(drawing, o.Draw(), 0o644),
		os.WriteFile(data, append(text, '\n'), 0o644))
}

// part runs some cases of a bench.
func (f *paperFlags) part(p *paper.Part, within time.Duration, keep func([]bench.Row)) error {
	c := caseFlags{benchFlags: benchFlags{cmd: f.cmd, quick: true, within: max(within, time.Second),
		cases: p.Cases, ways: p.Ways, keep: keep, noted: f.leftOut}, providers: p.Providers,
		sweeps: true}
	switch p.Bench {
	case "fabric":
		return c.benchFabric(p.Providers)
	case "net":
		return c.benchNet()
	case "iod":
		return c.benchIod("")
	case "nbd":
		n := nbdBenchFlags{benchFlags: c.benchFlags, only: p.Cases, servers: p.Providers, all: true}
		return n.benchNBD()
	case paper.LocalBench:
		return f.local(&c)
	}
	return f.files(&c)
}

// leftOut keeps notes about what is missing for the outcome; others tell how far a bench is. That a
// host has no RDMA device is said often enough.
func (f *paperFlags) leftOut(text string) {
	missing := strings.Contains(text, "left out") || strings.Contains(text, "there is no ")
	if missing && !strings.Contains(text, "RDMA") {
		f.notes = append(f.notes, text)
	}
}

// local runs cases of this host's own storage.
func (f *paperFlags) local(c *caseFlags) error {
	dir, remove, err := tempIn("")
	if err != nil {
		return err
	}
	defer remove()
	memory, free, err := tempInMemory()
	if err != nil {
		return err
	}
	defer free()
	own := paper.Local{Dir: dir, Memory: memory}
	return c.benchFlags.measure(bench.Budget{Rounds: 5, Round: 500 * time.Millisecond}, own.Cases())
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
