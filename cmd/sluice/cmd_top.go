package main

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin/top"
)

// topOptions are the flags of sluice top.
type topOptions struct {
	dir      string
	interval time.Duration
	once     bool
	count    int
	asJSON   bool
	sort     string
}

// topRows is how long a list is where there is no screen to bound it; --json has all of it.
const topRows = 20

// Bounds of the interval between two looks.
const (
	topIntervalMin = 100 * time.Millisecond
	topIntervalMax = time.Hour
)

func newTop() *cobra.Command {
	var o topOptions
	cmd := &cobra.Command{
		Use:   "top [ADMIN-ADDRESS...]",
		Short: "Watch a cluster: clients, files, rates, latencies, slow requests",
		Long: `Watch what the processes of a cluster do: metadata service, I/O servers and mounts.

In a terminal the view is live; press h for the keys, q to quit. Elsewhere one view is printed as
plain text, of one interval. Which processes there are is looked up in the cluster's folder, at each
look; addresses that are given are asked instead, as "sluice status" shows them.

Names of clients and files are shown to those who may read the cluster's folder: root, and who has
started it. Processes with --admin off cannot be seen.`,
		Example: `  sluice top
  sluice top --interval 5s --sort latency
  sluice top --once
  sluice top --json --count 0 | jq -c '.totals'
  sluice top 127.0.0.1:9401`,
		RunE: func(cmd *cobra.Command, args []string) error {
			src, err := o.source(args)
			if err != nil {
				return err
			}
			return o.run(cmd, src)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.dir, "dir", defaultDir, "the cluster's folder")
	flags.DurationVar(&o.interval, "interval", time.Second, "time between two looks")
	flags.BoolVar(&o.once, "once", false, "print one view as plain text, also in a terminal")
	flags.IntVar(&o.count, "count", 1, "how many views to print; 0: until it is interrupted")
	flags.StringVar(&o.sort, "sort", "requests", "by what: requests, bytes, latency or name")
	addJSON(cmd, &o.asJSON, top.View{})
	return cmd
}

// source checks the flags and tells where to look.
func (o *topOptions) source(args []string) (*topSource, error) {
	if o.interval < topIntervalMin || o.interval > topIntervalMax {
		return nil, refuse("--interval "+o.interval.String()+" is too short or too long",
			"Write a time from 100ms to 1h")
	}
	if o.count < 0 {
		return nil, refuse("--count must not be negative", "Write 0 for views without end")
	}
	if _, ok := topOrder(o.sort); !ok {
		return nil, refuse("--sort "+o.sort+" is unknown",
			"Choose requests, bytes, latency or name")
	}
	if len(args) > 0 {
		return &topSource{addrs: args}, nil
	}
	c, err := openCluster(o.dir)
	if err != nil {
		return nil, err
	}
	return &topSource{cluster: c}, nil
}

func topOrder(name string) (top.Order, bool) {
	for o := top.ByRequests; o <= top.ByName; o++ {
		if o.String() == name {
			return o, true
		}
	}
	return 0, false
}

// run shows views, live where there is a terminal that can.
func (o *topOptions) run(cmd *cobra.Command, src *topSource) error {
	defer src.close()
	out, ok := cmd.OutOrStdout().(*os.File)
	plain := o.once || o.asJSON || cmd.Flags().Changed("count")
	if ok && !plain && isTerminal(out) && isTerminal(os.Stdin) && os.Getenv("TERM") != "dumb" {
		order, _ := topOrder(o.sort)
		l := topLive{src: src, out: out, in: os.Stdin, interval: o.interval}
		l.screen.Order, l.screen.Color = order, os.Getenv("NO_COLOR") == ""
		return l.run(cmd.Context())
	}
	return o.print(cmd, src)
}

// print shows views one after the other.
func (o *topOptions) print(cmd *cobra.Command, src *topSource) error {
	ctx := cmd.Context()
	order, _ := topOrder(o.sort)
	before := src.look(ctx)
	for n := 0; o.count == 0 || n < o.count || o.once && n == 0; n++ {
		if !sleep(ctx, o.interval) {
			return nil
		}
		now := src.look(ctx)
		v := top.Compute(src.name(), before, now, time.Now())
		before = now
		v.Sort(order)
		if err := o.printOne(cmd, v, order, n); err != nil {
			return err
		}
		if o.once {
			break
		}
	}
	return nil
}

func (o *topOptions) printOne(cmd *cobra.Command, v *top.View, order top.Order, n int) error {
	if o.asJSON && (o.count == 1 || o.once) {
		return printJSON(cmd, v)
	}
	if o.asJSON { // one in a line, so that a program can tell them apart as they come
		return json.NewEncoder(cmd.OutOrStdout()).Encode(v)
	}
	text := top.Draw(v, top.Screen{Order: order, Rows: topRows})
	if n > 0 {
		text = "\n" + text
	}
	_, err := cmd.OutOrStdout().Write([]byte(text))
	return err
}

// sleep waits, and tells whether ctx is still there.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
