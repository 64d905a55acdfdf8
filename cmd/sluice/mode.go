package main

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/client"
)

// modeText is what people read about modes.
const modeText = "the way of data at the I/O servers: cached; stream (through the cache, without " +
	"displacing what others use); direct (past it, straight between disks and network); " +
	"cached-writes (reads direct)"

// modeNames are the modes in the order in which they are explained.
func modeNames() []string { return []string{"cached", "stream", "direct", "cached-writes"} }

// parseMode reads one.
func parseMode(text string) (client.How, error) {
	switch text {
	case "cached":
		return client.How{}, nil
	case "stream":
		return client.How{Policy: client.PolicyStream}, nil
	case "direct":
		return client.How{Mode: client.Direct}, nil
	case "cached-writes":
		return client.How{Mode: client.DirectReads}, nil
	}
	return client.How{}, refuse("there is no mode "+text,
		"Choose of "+strings.Join(modeNames(), ", "))
}

// wayFlag are mode and hints of a command that opens files.
type wayFlag struct {
	mode  string
	hints []string
}

// add adds the flags; usual is the mode of files that have no hints.
func (f *wayFlag) add(cmd *cobra.Command, usual string) {
	cmd.Flags().StringVar(&f.mode, "mode", "",
		modeText+" (default as the file's hints say, else "+usual+")")
	completeWords(cmd, "mode", modeNames()...)
	cmd.Flags().StringArrayVar(&f.hints, "hint", nil,
		"use the file so, whatever its own hints say: `NAME=VALUE`, see sluice hints --help")
}

// parse reads them.
func (f *wayFlag) parse(usual string) (way, error) {
	h, err := parseMode(cmp.Or(f.mode, usual))
	if err == nil {
		err = changeHints(&h, f.hints)
	}
	return way{how: h, asked: f.mode != "" || len(f.hints) > 0}, err
}

// way is how a command uses the files that it opens.
type way struct {
	how   client.How
	asked bool // by the user: it counts whatever the hints of the file are
}

func (w way) apply(f *client.File) {
	if w.asked || f.How() == (client.How{}) {
		f.SetHow(w.how)
	}
}
