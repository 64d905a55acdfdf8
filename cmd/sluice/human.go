package main

import (
	"math"
	"strconv"

	"github.com/spf13/cobra"
)

// addHuman adds -h for sizes that people read. Then --help has no short form, as with ls(1).
func addHuman(cmd *cobra.Command, human *bool) {
	cmd.Flags().Bool("help", false, "show this help")
	cmd.Flags().BoolVarP(human, "human-readable", "h", false, "print sizes like 4.0K and 12M")
}

// human is a number of bytes as ls(1), du(1) and df(1) print it with -h: rounded up, two digits
// where one is not enough.
func human(n int64) string {
	if n < 1024 {
		return strconv.FormatInt(n, 10)
	}
	v := float64(n)
	for _, unit := range "KMGTPE" {
		v /= 1024
		tenths := math.Ceil(v*10) / 10
		switch {
		case tenths < 10:
			return strconv.FormatFloat(tenths, 'f', 1, 64) + string(unit)
		case math.Ceil(v) < 1024:
			return strconv.FormatFloat(math.Ceil(v), 'f', 0, 64) + string(unit)
		}
	}
	return strconv.FormatInt(n, 10)
}

// completeWords completes the values of a flag.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	completeFlag(cmd, flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// completeFlag completes the values of a flag by a function.
func completeFlag(cmd *cobra.Command, flag string, fn completer) {
	if err := cmd.RegisterFlagCompletionFunc(flag, fn); err != nil {
		panic(err) // the flag is there, and has no completion yet
	}
}

// addAlso adds a second letter for a switch that has one, for hands that are used to it.
func addAlso(cmd *cobra.Command, value *bool, letter string) {
	name := "also-" + letter
	cmd.Flags().BoolVarP(value, name, letter, false, "")
	cmd.Flags().Lookup(name).Hidden = true
}
