package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/errs"
)

// benchFlags are what a user chooses.
type benchFlags struct {
	quick, json    bool
	plot, markdown string
	providers      []string
	within         time.Duration
	store          storeBenchFlags

	// Of bench net.
	cases                 []string
	list, figures, ladder bool
	profile               string

	save string // of bench tune; its folder is that of bench store
}

func newBench() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench fabric|net|iod|tune|fs|nbd|store [ADDRESS]",
		Short: "Measure against what this machine can do without sluice",
		Long: `Measures and prints, next to each figure, its ceiling, measured in turns in the same run:

  fabric  messages, one-sided writes and reads by size, each provider between two processes:
          tcp (in the clear, under TLS, with authenticated frames) against plain Go TCP;
          verbs, where there is an RDMA device, against ib_send_lat, ib_write_bw and
          ib_read_bw of perftest
  net     requests with their data between two processes, over tcp, shared memory and verbs:
          by size, protocol, progress, registration, service time and layer, and in pieces;
          against plain Go TCP, unix sockets and a copy through shared memory. --list names the
          cases, --figures prints those figures that are promised, beside what is promised,
          --ladder shows by which provider a server is reached and why not by a better one
  iod     an I/O server in a process of its own, over tcp and shared memory: cached, direct, by
          size, depth, size of the cache, members, in pieces, beside a loop that needs memory;
          against servers without a cache of their own, and against the network and the store
          alone, by the cases of bench net and bench store in the same run. --list, --figures
  tune    where one protocol of requests gives way to the next on this machine; --dir keeps it
          for a cluster
  fs      the client library against plain Go TCP, the mount against a FUSE file system in memory
  nbd     a block device in memory against nbdkit's memory plugin (needs fio and nbdkit)
  store   the local store of an I/O server against plain io_uring with direct I/O on the same
          file system or device: sizes, depths, durability, members, checksums, write
          amplification, and how long a restart with a full log takes

Every figure is the median of several rounds, with the lowest and the highest beside it; RATIO is
the figure divided by its ceiling's. Of latencies (us) and processor time (s/GiB) less is better,
of bandwidths (MB/s, 10^6 bytes) and rates (op/s) more. What cannot be measured here is left out,
and standard error says why.

Everything runs in processes and folders of its own; a running cluster is not touched.`,
		Example: `  sluice bench fabric --quick
  sluice bench fabric --providers verbs --plot verbs.svg
  sluice bench net --json > net.json
  sluice bench net --cases 'rtt-8,bulk-.*' --providers shm
  sluice bench net --ladder 127.0.0.1:9400
  sluice bench iod --cases 'cached-read-.*' --providers tcp
  sluice bench tune --dir .sluice
  sluice bench store --asked --dir /srv`,
		Args:      f.args,
		ValidArgs: []string{"fabric", "net", "iod", "tune", "fs", "nbd", "store"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.ladder {
				return f.benchLadder(cmd, strings.Join(args[1:], ""))
			}
			return f.run(cmd, args[0])
		},
	}
	cmd.Flags().BoolVar(&f.quick, "quick", false, "end within 30 seconds; figures are less steady")
	cmd.Flags().DurationVar(&f.within, "within", 0,
		"end within about this `TIME`, such as 10s: fewer and shorter rounds, then fewer cases")
	cmd.Flags().StringVar(&f.plot, "plot", "", "also draw the figures into this `FILE.svg`")
	cmd.Flags().StringVar(&f.markdown, "markdown", "",
		"also write the table into this `FILE.md`; text around an older one stays")
	cmd.Flags().StringSliceVar(&f.providers, "providers", nil,
		"fabric: only these of "+strings.Join(fabricProviders(), ",")+"; net and tune: of "+
			strings.Join(netProviders(), ",")+"; iod: of "+strings.Join(iodProviders(), ",")+
			" (default all that work here)")
	f.addNet(cmd)
	f.store.add(cmd)
	addJSON(cmd, &f.json)
	return cmd
}

func (f *benchFlags) addNet(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.cases, "cases", nil,
		"net, iod: only cases with these `NAMES`, which are regular expressions")
	cmd.Flags().BoolVar(&f.list, "list", false, "net, iod: list the cases")
	cmd.Flags().BoolVar(&f.figures, "figures", false,
		"net, iod: measure and print what is promised, beside what is promised")
	cmd.Flags().BoolVar(&f.ladder, "ladder", false,
		"net: show how a server at ADDRESS, or the bench's own, is reached, and why not better")
	cmd.Flags().StringVar(&f.profile, "profile", "",
		"net, iod: write processor profiles of both processes: into `FILE` and FILE.peer")
	cmd.Flags().StringVar(&f.save, "save", "", "tune: write the limits into this `FILE`")
}

// args checks what stands behind the command: a bench, and an address where one is needed.
func (f *benchFlags) args(cmd *cobra.Command, args []string) error {
	if len(args) == 0 || !f.ladder {
		return cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)(cmd, args)
	}
	if args[0] != "net" || len(args) > 2 {
		return refuse("--ladder does not belong there",
			"Write: sluice bench net --ladder, or with an address: sluice bench net --ladder ADDRESS")
	}
	return nil
}

func (f *benchFlags) run(cmd *cobra.Command, name string) error {
	if err := f.check(name); err != nil {
		return err
	}
	b := bench.Full()
	if f.quick {
		b = bench.Quick()
	}
	switch {
	case name == "fabric":
		b = bench.FabricBudget(f.quick)
	case name == "net" && f.figures:
		b = bench.FiguresBudget(f.quick)
	case name == "net":
		b = bench.NetBudget(f.quick)
	}
	switch name {
	case "store":
		b = bench.StoreBudget(f.quick)
	case "iod":
		b = bench.IodBudget(f.quick, f.figures)
	}
	if f.within > 0 {
		b.Total = f.within
	}
	b.All = len(f.cases) > 0 // who names a case wants to see it
	b.Note = func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), "sluice: bench "+name+": "+text) }
	switch {
	case name == "tune":
		return f.benchTune(cmd, b.Note)
	case f.list && name == "iod":
		return f.listIod(cmd)
	case f.list:
		return f.listNet(cmd)
	}
	rows, err := f.measure(cmd.Context(), name, b)
	if errs.KindOf(err) == errs.Disconnected {
		return hint(err, "The other process of the bench ended, or lost the connection: see above")
	}
	if err != nil {
		return err
	}
	return f.show(cmd, name, rows)
}

// check finds what would be a pity to find after minutes of measuring.
func (f *benchFlags) check(name string) error {
	if len(f.providers) > 0 && !slices.Contains([]string{"fabric", "net", "iod", "tune"}, name) {
		return refuse("bench "+name+" has no providers to choose from",
			"Leave --providers out, or run: sluice bench fabric, sluice bench net")
	}
	if name != "net" && name != "iod" && (f.list || f.figures || len(f.cases) > 0 || f.profile != "") {
		return refuse("--cases, --list, --figures and --profile belong to bench net and bench iod",
			"Leave them out")
	}
	if name != "tune" {
		if f.save != "" {
			return refuse("--save belongs to bench tune", "Leave it out")
		}
		if err := f.store.check(name); err != nil {
			return err
		}
	}
	for _, file := range []string{f.plot, f.markdown, f.save, f.profile} {
		if info, err := os.Stat(filepath.Dir(file)); err != nil || !info.IsDir() {
			return refuse("there is no folder "+filepath.Dir(file), "Choose another FILE")
		}
	}
	if f.plot != "" && filepath.Ext(f.plot) != ".svg" {
		return refuse(f.plot+" is no name of a drawing", "Choose a name that ends in .svg")
	}
	return nil
}

// show prints the rows, and writes the files that were asked for.
func (f *benchFlags) show(cmd *cobra.Command, name string, rows []bench.Row) error {
	about := bench.About{
		Title: "sluice bench " + name, Machine: bench.Machine(), Command: f.command(name),
	}
	switch name {
	case "net":
		about.Figures = bench.Figures(rows)
	case "iod":
		about.Figures = bench.IodFigures(rows)
	}
	if f.plot != "" {
		if err := os.WriteFile(f.plot, bench.Plot(about, rows), 0o644); err != nil {
			return err
		}
	}
	if f.markdown != "" {
		old, err := os.ReadFile(f.markdown)
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		text, err := bench.Markdown(about, rows, old)
		if err == nil {
			err = os.WriteFile(f.markdown, text, 0o644)
		}
		if err != nil {
			return errs.Wrap("bench", f.markdown, err)
		}
	}
	switch {
	case f.figures && f.json:
		return bench.WriteFiguresJSON(cmd.OutOrStdout(), about.Figures)
	case f.figures:
		return bench.WriteFigures(cmd.OutOrStdout(), about.Figures)
	case f.json:
		return bench.WriteJSON(cmd.OutOrStdout(), rows)
	}
	if name == "store" && f.store.asked {
		return bench.WriteVerdicts(cmd.OutOrStdout(), bench.Judge(bench.StorePromises(), rows))
	}
	return bench.WriteTable(cmd.OutOrStdout(), rows)
}

// command is what repeats the measurement.
func (f *benchFlags) command(name string) string {
	text := "sluice bench " + name
	if f.quick {
		text += " --quick"
	}
	if f.within > 0 {
		text += " --within " + f.within.String()
	}
	if len(f.providers) > 0 {
		text += " --providers " + strings.Join(f.providers, ",")
	}
	if len(f.cases) > 0 {
		text += " --cases " + strings.Join(f.cases, ",")
	}
	if f.figures {
		text += " --figures"
	}
	return text + f.store.command()
}

// measure gives the bench a folder for its sockets and files.
func (f *benchFlags) measure(ctx context.Context, name string, b bench.Budget) ([]bench.Row,
	error) {
	switch name {
	case "store":
		return benchStore(ctx, b, f)
	case "iod":
		return benchIod(ctx, b, f)
	}
	dir, err := os.MkdirTemp("", "sluice-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	switch name {
	case "fabric":
		return benchFabric(ctx, b, f)
	case "net":
		return benchNet(ctx, b, f)
	case "fs":
		return benchFS(ctx, b, dir)
	case "nbd":
		return benchNBD(ctx, b, dir)
	}
	return nil, fmt.Errorf("no bench %q", name)
}
