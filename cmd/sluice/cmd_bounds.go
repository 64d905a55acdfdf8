package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
)

// roleBounds is what `sluice bounds --json` prints for each kind of process.
type roleBounds struct {
	Role   string  `json:"role"`
	Bounds []bound `json:"bounds"`
}

func newBounds() *cobra.Command {
	var memory memoryFlags
	var members int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "bounds",
		Short: "Tell what bounds each kind of process, and what follows from --memory",
		Long: `Tell what bounds each kind of process: memory and its parts, connections, requests that
run, and what an I/O server lets through to its cache and its disk. Nothing has to run for that: it
is what processes are started with.`,
		Example: "  sluice bounds\n  sluice bounds --memory 4G --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := memory.plan(members)
			if err != nil {
				return err
			}
			roles := allBounds(plan, memory.writeBack)
			if asJSON {
				return printJSON(cmd, roles)
			}
			return printBounds(cmd, roles)
		},
	}
	cmd.Flags().StringVar(&memory.memory, "memory", defaultMemory, "all memory of an I/O server")
	cmd.Flags().BoolVar(&memory.writeBack, "write-back", true, "as an I/O server is started with it")
	cmd.Flags().IntVar(&members, "members", 1, "how many members its store has")
	addJSON(cmd, &asJSON, []roleBounds{})
	return cmd
}

func allBounds(plan memoryPlan, writeBack bool) []roleBounds {
	iod, meta, tool, serving := boundIod(plan, writeBack), boundMeta(), boundClient(false),
		boundClient(true)
	block := boundNBD()
	return []roleBounds{
		{"I/O server", iod.list()},
		{"metadata service", meta.list()},
		{"client: mount, block server", serving.list()},
		{"client: tools", tool.list()},
		{"block server", listNBD(&block)},
	}
}

// printBounds indents what is a part of something.
func printBounds(cmd *cobra.Command, roles []roleBounds) error {
	for i, r := range roles {
		if i > 0 {
			fmt.Fprintln(cmd.OutOrStdout())
		}
		fmt.Fprintln(cmd.OutOrStdout(), r.Role)
		t := newTable(cmd)
		for _, b := range inTree(r.Bounds) {
			fmt.Fprintf(t, "%s%s\t%s\t%s\n", strings.Repeat("  ", b.depth), b.Name, b.amount(), b.Why)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// amount is the number, or both.
func (b *bound) amount() string {
	var parts []string
	if b.Bytes > 0 || b.Count == 0 {
		parts = append(parts, admin.Bytes(b.Bytes))
	}
	if b.Count > 0 {
		parts = append(parts, strconv.Itoa(b.Count))
	}
	return strings.Join(parts, ", ")
}

// leaf is a bound and how deep it is.
type leaf struct {
	bound
	depth int
}

// inTree orders bounds so that each is followed by its parts.
func inTree(list []bound) []leaf {
	var out []leaf
	var add func(of string, depth int)
	add = func(of string, depth int) {
		for _, b := range list {
			if b.Of == of {
				out = append(out, leaf{b, depth})
				add(b.Name, depth+1)
			}
		}
	}
	add("", 1)
	return out
}
