package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionInfo is what `sluice version --json` prints.
type versionInfo struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Cgo      bool   `json:"cgo"`
}

func newVersion() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Tell which build this is",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := thisVersion()
			if asJSON {
				return printJSON(cmd, v)
			}
			cgo := "without cgo"
			if v.Cgo {
				cgo = "with cgo"
			}
			fmt.Fprintf(cmd.OutOrStdout(), "sluice %s, %s, %s, %s\n", v.Version, v.Go, v.Platform, cgo)
			return nil
		},
	}
	addJSON(cmd, &asJSON)
	return cmd
}

func thisVersion() versionInfo {
	v := versionInfo{
		Version:  version,
		Go:       runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "CGO_ENABLED" {
				v.Cgo = s.Value == "1"
			}
		}
	}
	return v
}
