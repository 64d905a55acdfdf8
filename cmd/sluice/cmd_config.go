package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/config"
)

func newConfig() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check and show what a host runs: its sluice.toml",
		Long: `Looks at the file that says what a host runs: its metadata service, I/O servers, gateways
and mounts. sluice init writes one, sluice serve runs it; docs/ops/serve.md explains each key.`,
		Example: "  sluice config check\n  sluice config show --json",
	}
	cmd.AddCommand(newConfigCheck(), newConfigShow())
	return cmd
}

// configCheck is what `sluice config check --json` prints.
type configCheck struct {
	File     string           `json:"file"`
	OK       bool             `json:"ok"`
	Problems []config.Problem `json:"problems"`
}

func newConfigCheck() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Find what is wrong with a host's sluice.toml",
		Long: `Reads a host's file as sluice serve does and tells everything that is wrong with it, each
with its line and what to do about it; then the exit status is 1. Nothing is started or changed.

` + whichConfig,
		Example: "  sluice config check\n" +
			"  sluice config check ./new.toml && mv new.toml .sluice/sluice.toml",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := findConfig(first(args))
			if err != nil {
				return err
			}
			cfg, err := loadConfig(file)
			var invalid config.Invalid
			if err != nil && (!asJSON || !errors.As(err, &invalid)) {
				return err
			}
			if asJSON {
				r := configCheck{File: file, OK: err == nil, Problems: append([]config.Problem{}, invalid...)}
				if err := printJSON(cmd, r); err != nil || r.OK {
					return err
				}
				return &exitError{code: 1}
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is right: %s.\n", file, countRoles(cfg))
			return nil
		},
	}
	addJSON(cmd, &asJSON, configCheck{})
	return cmd
}

func newConfigShow() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show [FILE]",
		Short: "Show a host's sluice.toml with all defaults filled in",
		Long: `Shows what sluice serve makes of a host's file: every key with its value, those that were
left out with their defaults, paths as they are used. What is printed is a file that means the same.
It holds no secrets, as the file does not: keys lie in files of their own in the cluster's folder.

` + whichConfig,
		Example: "  sluice config show\n  sluice config show --json | jq '.iod[].store'",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := findConfig(first(args))
			if err != nil {
				return err
			}
			cfg, err := loadConfig(file)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd, cfg)
			}
			_, err = cmd.OutOrStdout().Write(config.Render(cfg, "What "+file+" means."))
			return err
		},
	}
	addJSON(cmd, &asJSON, config.Config{})
	return cmd
}

func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// countRoles says what a file asks for.
func countRoles(cfg *config.Config) string {
	text := "no metadata service"
	if cfg.Meta != nil {
		text = "a metadata service"
	}
	return fmt.Sprintf("%s, %d I/O servers, %d gateways, %d mounts", text, len(cfg.Iods),
		len(cfg.NBDs), len(cfg.Mounts))
}
