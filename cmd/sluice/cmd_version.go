package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	rdma "github.com/sluice-storage/sluice/fabric/verbs" // the tests have verbs of their own
)

// versionInfo is what `sluice version --json` prints.
type versionInfo struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Cgo      bool   `json:"cgo"`
	RDMA     bool   `json:"rdma"`                  // there are the libraries and a device for it
	WhyNot   string `json:"why_no_rdma,omitempty"` // if not
}

func newVersion() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Tell which build this is, and whether it finds RDMA here",
		Long: `Tells the version of this program, by which Go it was built for which platform, whether it
was built with cgo, and whether there are the libraries and a device for RDMA on this host. Servers
and clients should be of one version.`,
		Example: "  sluice version\n  sluice version --json",
		Args:    cobra.NoArgs,
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
			devices := "available"
			if !v.RDMA {
				devices = "not available: " + v.WhyNot
			}
			fmt.Fprintf(cmd.OutOrStdout(), "RDMA %s\n", devices)
			return nil
		},
	}
	addJSON(cmd, &asJSON, versionInfo{})
	return cmd
}

func thisVersion() versionInfo {
	v := versionInfo{
		Version:  version,
		Go:       runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	v.RDMA, v.WhyNot = rdma.Available()
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "CGO_ENABLED" {
				v.Cgo = s.Value == "1"
			}
		}
	}
	return v
}
