package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/errs"
)

func newBench() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure against what this machine can do without sluice",
		Long: `Measures and prints, next to each figure, its ceiling, measured in turns in the same run.

Every figure is the median of several rounds, with the lowest and the highest beside it; RATIO is
the figure divided by its ceiling's. Of latencies (us) and processor time (s/GiB) less is better,
of bandwidths (MB/s, 10^6 bytes) and rates (op/s) more. What cannot be measured here is left out,
and standard error says why.

Everything runs in processes and folders of its own; a running cluster is not touched. Each bench
has flags of its own: sluice bench net --help`,
		Example: "  sluice bench net --quick\n  sluice bench iod --json > iod.json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetFlagErrorFunc(explainFlag)
	cmd.AddCommand(newBenchFabric(), newBenchNet(), newBenchIod(), newBenchMeta(), newBenchTune(),
		newBenchFS(), newBenchList(), newBenchMount(), newBenchNBD(), newBenchStore(),
		newBenchTransfer(), newBenchPaper())
	return cmd
}

// explainFlag tells which other benches have a flag that one does not have.
func explainFlag(cmd *cobra.Command, err error) error {
	_, name, found := strings.Cut(err.Error(), "unknown flag: --")
	if !found || cmd.Parent() == nil {
		return err
	}
	var have []string
	for _, other := range cmd.Parent().Commands() {
		if other.Flags().Lookup(name) != nil {
			have = append(have, "bench "+other.Name())
		}
	}
	if have == nil {
		return err
	}
	return hint(err, "--%s is a flag of %s. See: sluice bench %s --help", name,
		strings.Join(have, ", "), cmd.Name())
}

// benchFlags are what all benches have in common.
type benchFlags struct {
	cmd            *cobra.Command
	quick, json    bool
	within         time.Duration
	plot, markdown string
	cases          []string // of benches with many; see addCases
	list           bool
	keep           func([]bench.Row) // gets rows in place of being printed; nil: they are
	ways           []string          // only contenders with these names, regular expressions; nil: all
	noted          func(string)      // gets notes, too; may be nil
}

func (f *benchFlags) add(cmd *cobra.Command) {
	f.cmd = cmd
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVar(&f.quick, "quick", false, "end within 30 seconds; figures are less steady")
	cmd.Flags().DurationVar(&f.within, "within", 0,
		"end within about this `TIME`, such as 10s: fewer and shorter rounds, then fewer cases")
	cmd.Flags().StringVar(&f.plot, "plot", "", "also draw the figures into this `FILE.svg`")
	cmd.Flags().StringVar(&f.markdown, "markdown", "",
		"also write the table into this `FILE.md`; text around an older one stays")
	addJSONLines(cmd, &f.json, bench.Row{})
}

// addCases lets the user choose among many cases.
func (f *benchFlags) addCases() {
	f.cmd.Flags().StringSliceVar(&f.cases, "cases", nil,
		"only cases with these `NAMES`, which are regular expressions")
	f.cmd.Flags().BoolVar(&f.list, "list", false, "list the cases")
}

func (f *benchFlags) name() string { return "bench " + f.cmd.Name() }

// note says what is left out.
func (f *benchFlags) note(text string) {
	if f.noted != nil {
		f.noted(text)
	}
	fmt.Fprintln(f.cmd.ErrOrStderr(), "sluice: "+f.name()+": "+text)
}

// check finds what would be a pity to find after minutes of measuring.
func (f *benchFlags) check(files ...string) error {
	for _, file := range append(files, f.plot, f.markdown) {
		if info, err := os.Stat(filepath.Dir(file)); err != nil || !info.IsDir() {
			return refuse("there is no folder "+filepath.Dir(file), "Choose another FILE")
		}
	}
	if f.plot != "" && filepath.Ext(f.plot) != ".svg" {
		return refuse(f.plot+" is no name of a drawing", "Choose a name that ends in .svg")
	}
	return nil
}

// run measures the cases of which one of the patterns matches, in the time that the user allows,
// and writes the files that were asked for.
func (f *benchFlags) run(b bench.Budget, cases []bench.Case, patterns []string,
	promises []bench.Promise) ([]bench.Row, []bench.Figure, error) {
	cases, err := f.choose(cases, patterns)
	if err != nil {
		return nil, nil, err
	}
	if f.within > 0 {
		b.Total = f.within
	}
	b.Note = f.note
	rows, err := bench.RunAll(f.cmd.Context(), b, cases)
	if errs.KindOf(err) == errs.Disconnected {
		err = hint(err, "The other process of the bench ended, or lost the connection: see above")
	}
	if err != nil {
		return nil, nil, err
	}
	figures := bench.Judge(promises, rows)
	return rows, figures, f.write(rows, figures)
}

func (f *benchFlags) choose(cases []bench.Case, patterns []string) ([]bench.Case, error) {
	chosen, err := bench.Choose(cases, patterns)
	if err == nil {
		chosen, err = bench.ChooseWays(chosen, f.ways)
	}
	return chosen, hint(err, "See: sluice %s --list", f.name())
}

// measure is run of all cases, or of those that were named, and print.
func (f *benchFlags) measure(b bench.Budget, cases []bench.Case) error {
	b.All = len(f.cases) > 0 // who names a case wants to see it
	rows, _, err := f.run(b, cases, f.cases, nil)
	if err != nil {
		return err
	}
	return f.print(rows)
}

func (f *benchFlags) print(rows []bench.Row) error {
	if f.keep != nil {
		f.keep(rows)
		return nil
	}
	if f.json {
		return bench.WriteJSON(f.cmd.OutOrStdout(), rows)
	}
	return bench.WriteTable(f.cmd.OutOrStdout(), rows)
}

// report prints rows, or the figures made of them.
func (f *benchFlags) report(rows []bench.Row, figures []bench.Figure, asFigures bool) error {
	switch {
	case !asFigures:
		return f.print(rows)
	case f.json:
		return bench.WriteFiguresJSON(f.cmd.OutOrStdout(), figures)
	}
	return bench.WriteFigures(f.cmd.OutOrStdout(), figures)
}

// write writes the files that were asked for.
func (f *benchFlags) write(rows []bench.Row, figures []bench.Figure) error {
	about := bench.About{Title: "sluice " + f.name(), Machine: bench.Machine(),
		Command: f.command(), Figures: figures}
	if f.plot != "" {
		if err := os.WriteFile(f.plot, bench.Plot(about, rows), 0o644); err != nil {
			return err
		}
	}
	if f.markdown == "" {
		return nil
	}
	old, err := os.ReadFile(f.markdown)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	text, err := bench.Markdown(about, rows, old)
	if err == nil {
		err = os.WriteFile(f.markdown, text, 0o644)
	}
	return errs.Wrap("bench", f.markdown, err)
}

// command is what repeats the measurement: all flags that were given but those that only say where
// to write.
func (f *benchFlags) command() string {
	text := "sluice " + f.name()
	f.cmd.Flags().VisitAll(func(one *pflag.Flag) {
		if !one.Changed || one.Hidden || one.Name == "figures" && one.Value.Type() != "bool" ||
			slices.Contains([]string{"json", "plot", "markdown", "profile"}, one.Name) {
			return
		}
		text += " --" + one.Name
		if one.Value.Type() != "bool" {
			text += " " + strings.Trim(one.Value.String(), "[]")
		}
	})
	return text
}

// caseFlags are those of benches with many cases over several providers.
type caseFlags struct {
	benchFlags
	providers []string
	figures   bool
	sweeps    bool // of bench net: also the papers' cases
	profile   string
}

func (f *caseFlags) add(cmd *cobra.Command, known []string) {
	f.benchFlags.add(cmd)
	addProviders(cmd, &f.providers, known)
	f.addCases()
	cmd.Flags().BoolVar(&f.figures, "figures", false,
		"measure and print what is promised, beside what is promised")
	cmd.Flags().StringVar(&f.profile, "profile", "",
		"write processor profiles of both processes: into `FILE` and FILE.peer")
}

func addProviders(cmd *cobra.Command, list *[]string, known []string) {
	cmd.Flags().StringSliceVar(list, "providers", nil,
		"only these of "+strings.Join(known, ",")+" (default all that work here)")
}

// brief is a quick run of whatever is measured first, as long as nothing was asked for by name.
func (f *caseFlags) brief() bool { return f.quick && len(f.cases) == 0 && !f.figures }

// patterns choose the cases: those that figures are made of, or those that were named.
func (f *caseFlags) patterns(figures []string) []string {
	if f.figures {
		return figures
	}
	return f.cases
}

// peerArgs are those of the other process.
func (f *caseFlags) peerArgs(args ...string) []string {
	if f.profile != "" {
		args = append(args, "--profile", f.profile+".peer")
	}
	return args
}

// measure runs the chosen cases, and prints rows or figures.
func (f *caseFlags) measure(b bench.Budget, cases []bench.Case, figureCases []string,
	promises []bench.Promise) error {
	b.All = len(f.cases) > 0 // who names a case wants to see it
	rows, figures, err := f.run(b, cases, f.patterns(figureCases), promises)
	if err != nil {
		return err
	}
	return f.report(rows, figures, f.figures)
}

// listCases lists them.
func (f *caseFlags) listCases(cases []bench.Case, figureCases []string) error {
	return f.writeCases(cases, f.patterns(figureCases))
}

func (f *benchFlags) writeCases(cases []bench.Case, patterns []string) error {
	cases, err := f.choose(cases, patterns)
	if err != nil {
		return err
	}
	return bench.WriteCases(f.cmd.OutOrStdout(), cases)
}

// tempIn makes a folder for the time of a bench.
func tempIn(where string) (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp(where, "sluice-bench-")
	return dir, func() { os.RemoveAll(dir) }, err
}
