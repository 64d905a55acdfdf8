package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/peer"
	xfer "github.com/sluice-storage/sluice/transfer"
)

const transferText = `Copies one file between two hosts, or between a host and a cluster, by the
fastest way that the two have: shared memory, RDMA, TCP. At one side a service runs (--listen), the
other one names it. SOURCE and DESTINATION are each one of

  PATH             a file of this host
  HOST:PORT:/PATH  a file below the folder of a service, which --dir has told it
  sluice:/PATH     a file of a cluster, as in sluice cp
  mem:SIZE         memory, for measuring; as a destination mem: alone. HOST:PORT:mem: at a service

and at most one of them is at a service. Data goes in blocks (--block), several at once (--depth),
each with a CRC-32C that its receiver compares. It is received as .NAME.sluice-part beside the
destination, and takes its name when everything is there and synced, and the sums of both sides
agree. --verify reads it back before that.

What was cut, by whatever, is gone on with by the same command: blocks that are there are read,
and compared by their sums with the original; only others are sent. --restart begins anew.
A destination that exists is left alone without --overwrite.

Which way is used depends on the two hosts and on the blocks: where there is much to send, each that
connects is measured with such blocks for some milliseconds, and the fastest is taken. --explain
shows what could have been taken, and why it was not; --driver asks for one.

A service listens on loopback, for users of this host that may read its secret; or, with the keys of
a cluster's host (--credential, see sluice join), for all members of the cluster, whom --only
limits. It serves one folder: no name leads out of it, by dots or by symbolic links.`

// transferFlags are the options as the user wrote them.
type transferFlags struct {
	urlFlag
	listen, dir     string
	allow, only     []string
	authenticated   bool
	sessions        int
	memory          string
	driver, pieces  string
	block           string
	depth           int
	timeout         time.Duration
	overwrite       bool
	restart, verify bool
	explain         bool
	asJSON, quiet   bool
}

func newTransfer() *cobra.Command {
	var f transferFlags
	cmd := &cobra.Command{
		Use:   "transfer SOURCE DESTINATION | --listen HOST:PORT --dir FOLDER",
		Short: "Copy a file between two hosts by the fastest way they have",
		Long:  transferText,
		Example: "  sluice transfer --listen 127.0.0.1:9500 --dir /srv/incoming\n" +
			"  sluice transfer data.bin 127.0.0.1:9500:/data.bin\n" +
			"  sluice transfer --explain --verify 10.1.0.7:9500:/run7/out.h5 sluice:/results/out.h5\n" +
			"  sluice transfer --pieces 16x64K@1M mem:4G 10.1.0.7:9500:mem:",
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case f.listen != "" && len(args) > 0:
				return refuse("--listen waits for others and takes no files",
					"Run it at one side, and sluice transfer SOURCE DESTINATION at the other one")
			case f.listen != "":
				return runTransferService(cmd, &f)
			case len(args) != 2:
				return refuse("a transfer needs a source and a destination",
					"See: sluice help transfer")
			}
			return runTransfer(cmd, &f, args[0], args[1])
		},
	}
	f.addAll(cmd)
	return cmd
}

func (f *transferFlags) addAll(cmd *cobra.Command) {
	f.urlFlag.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.listen, "listen", "", "be the service at `HOST:PORT`, several with commas")
	fl.StringVar(&f.dir, "dir", "",
		"the `FOLDER` that the service gives files of, and takes them into")
	fl.StringSliceVar(&f.allow, "allow", []string{"read", "write"},
		"what others may do at the service: read, write, memory")
	fl.StringSliceVar(&f.only, "only", nil, "serve only members of these `NAMES`")
	fl.BoolVar(&f.authenticated, "authenticated", false,
		"a service with keys: nobody can change what is sent, who listens there can read it")
	fl.IntVar(&f.sessions, "sessions", 16, "how many the service serves at once")
	fl.StringVar(&f.memory, "memory", "512M", "the most memory for blocks")
	fl.StringVar(&f.driver, "driver", "auto", "the way to use: auto, shm, verbs, tcp, socket")
	fl.StringVar(&f.pieces, "pieces", "",
		"memory of a block as `NxSIZE@STRIDE`, like 16x64K@1M: N pieces that begin STRIDE apart")
	fl.StringVar(&f.block, "block", "1M", "bytes of a block")
	fl.IntVar(&f.depth, "depth", 4, "how many blocks are under way at once")
	fl.DurationVar(&f.timeout, "timeout", 30*time.Second, "how long the other side may do nothing")
	fl.BoolVar(&f.overwrite, "overwrite", false, "replace a destination that exists")
	fl.BoolVar(&f.restart, "restart", false, "forget an attempt that was cut")
	fl.BoolVar(&f.verify, "verify", false, "read the copy back and compare before it takes its name")
	fl.BoolVar(&f.explain, "explain", false, "tell which ways there are, and why one was taken")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "show no progress")
	addJSON(cmd, &f.asJSON, transferSum{})
	completeWords(cmd, "driver", "auto", peer.SHM, peer.Verbs, peer.TCP, xfer.Socket)
	completeWords(cmd, "allow", "read", "write", "memory")
}

// options are those of the transfer.
func (f *transferFlags) options() (o xfer.Options, err error) {
	block, err := parseSize(f.block)
	if err != nil {
		return o, err
	}
	if block < xfer.BlockMin || block > xfer.BlockMax {
		return o, refuse("--block "+f.block, "Choose from 4K to 16M")
	}
	o = xfer.Options{Block: int(block), Depth: f.depth, Verify: f.verify, Timeout: f.timeout}
	if f.depth < 1 || f.depth > 64 {
		return o, refuse(fmt.Sprintf("--depth %d", f.depth), "Choose from 1 to 64")
	}
	if f.timeout < time.Second || f.timeout > time.Hour {
		return o, refuse(fmt.Sprintf("--timeout %v", f.timeout), "Choose from 1s to 1h")
	}
	if f.pieces != "" {
		if o.Shape, err = parsePieces(f.pieces); err != nil {
			return o, err
		}
	}
	drivers := []string{"auto", peer.SHM, peer.Verbs, peer.TCP, xfer.Socket}
	if !slices.Contains(drivers, f.driver) {
		return o, refuse("there is no driver "+f.driver, "Choose of auto, shm, verbs, tcp, socket")
	}
	return o.WithDefaults(), nil
}

// asked is the driver that was asked for; empty: none in particular.
func (f *transferFlags) asked() string {
	if f.driver == "auto" {
		return ""
	}
	return f.driver
}

// transferSum is what a transfer was.
type transferSum struct {
	From    string        `json:"from"`
	To      string        `json:"to"`
	Driver  string        `json:"driver"`
	Seconds float64       `json:"seconds"`
	Rate    float64       `json:"bytes_per_second"` // of what was moved
	Block   int           `json:"block"`
	Choices []xfer.Choice `json:"choices"`
	xfer.Result
}

// print tells what was done.
func (s *transferSum) print(cmd *cobra.Command, f *transferFlags) error {
	if f.asJSON {
		return printJSON(cmd, s)
	}
	out := cmd.OutOrStdout()
	if f.explain {
		t := newTable(cmd)
		fmt.Fprintln(t, "driver\tat\tmeasured\tresult")
		for _, c := range s.Choices {
			rate := "-"
			if c.Rate > 0 {
				rate = admin.Bytes(int64(c.Rate)) + "/s"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", c.Driver, cmp.Or(c.Addr, "-"), rate,
				cmp.Or(c.Why, "taken"))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	text := fmt.Sprintf("%s by %s in %.2f s: %s/s, crc32c %08x", admin.Bytes(s.Bytes), s.Driver,
		s.Seconds, admin.Bytes(int64(s.Rate)), s.Sum)
	if s.Skipped > 0 {
		text += fmt.Sprintf("; %s of it were there already", admin.Bytes(s.Skipped))
	}
	fmt.Fprintln(out, text)
	return nil
}
