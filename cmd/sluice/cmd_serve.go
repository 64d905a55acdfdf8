package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/config"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/internal/sdnotify"
)

// serveOptions is what `sluice serve` was asked for.
type serveOptions struct {
	file             string
	asJSON           bool
	systemd, install bool
	unitDir          string
	detach           bool
}

// serveEvent is a line of `sluice serve --json`.
type serveEvent struct {
	Time      time.Time `json:"time"`
	Level     string    `json:"level"`
	Msg       string    `json:"msg"`
	Process   string    `json:"process,omitempty"`
	PID       int       `json:"pid,omitempty"`
	How       string    `json:"how,omitempty"` // a process ended
	Err       string    `json:"err,omitempty"`
	File      string    `json:"file,omitempty"`
	URL       string    `json:"url,omitempty"`
	Processes int       `json:"processes,omitempty"`
	Problems  int       `json:"problems,omitempty"`
}

func newServe() *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run what this host's sluice.toml says: metadata, I/O servers, gateways, mounts",
		Long: `Runs what a host's file says (sluice init makes one): the metadata service, I/O servers,
NBD gateways and mounts, each a process of its own that is started again when it dies. A process
that cannot start keeps none of the others from working. Every event is a line on standard error.

SIGHUP reads the file again: what is new starts, what is gone ends, what is changed is started anew,
the rest goes on. A file that is wrong changes nothing. SIGTERM drains: mounts are unmounted,
volumes flushed, I/O servers write to their disks, the metadata service ends last; a second signal
ends everything at once.

--systemd prints the unit that runs it, with this program and this file; --install writes it where
systemd looks.

` + whichConfig,
		Example: "  sluice init && sluice serve\n  sluice serve --config /etc/sluice/sluice.toml\n" +
			"  sluice serve --systemd --install",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case o.install && !o.systemd:
				return refuse("--install installs a unit of systemd", "Add --systemd")
			case o.systemd:
				return o.unit(cmd)
			case o.detach:
				return detachServe(cmd, o.file)
			}
			return runServe(cmd, o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.file, "config", "", "the `FILE` that says what to run")
	flags.BoolVarP(&o.detach, "detach", "d", false, "return when it serves and leave it running")
	flags.BoolVar(&o.systemd, "systemd", false, "print the systemd unit that does this")
	flags.BoolVar(&o.install, "install", false, "with --systemd, write it where systemd looks")
	flags.StringVar(&o.unitDir, "unit-dir", "", "with --install, the `FOLDER` that it is written to "+
		"(default /etc/systemd/system, for users ~/.config/systemd/user)")
	addJSONLines(cmd, &o.asJSON, serveEvent{})
	return cmd
}

// logger writes one line per event, with --json a document.
func (o *serveOptions) logger() *slog.Logger {
	if o.asJSON {
		return slog.New(slog.NewJSONHandler(os.Stderr, nil))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil))
}

// detachServe leaves the host of a file running in the background.
func detachServe(cmd *cobra.Command, named string) error {
	file, err := findConfig(named)
	if err != nil {
		return err
	}
	cfg, err := loadConfig(file)
	if err != nil {
		return err
	}
	return detach(cmd, detachOptions{log: filepath.Join(cfg.Folder, "log", "serve.log"),
		args: []string{"serve", "--config", file}})
}

// servedStory tells what runs, and how to stop it.
func (h *host) servedStory() string {
	var b strings.Builder
	fmt.Fprintf(&b, "The host %s serves: %s.\n", h.cluster.hostName(),
		strings.Join(sortedNames(h.running), ", "))
	fmt.Fprintf(&b, "  look       %s status --dir %s\n", os.Args[0], h.cluster.dir)
	fmt.Fprintf(&b, "  stop       %s down --dir %s\n", os.Args[0], h.cluster.dir)
	if c, err := identity.ReadCredential(h.cluster.hostCredentialFile()); err == nil &&
		c.Expired(time.Now()) {
		fmt.Fprintf(&b, "! the certificate of %s has ended on %s: nobody talks to it. If the clock is "+
			"right, join again with a new token: sluice join HOST:PORT TOKEN --dir %s\n", c.Name,
			c.Peer().NotAfter.Local().Format(time.DateTime), h.cluster.dir)
	}
	return b.String()
}

func runServe(cmd *cobra.Command, o serveOptions) error {
	notifier, err := sdnotify.Open()
	log := o.logger()
	if err != nil {
		log.Warn("the service manager does not hear", "err", err)
	}
	defer notifier.Close()
	file, err := findConfig(o.file)
	if err != nil {
		return err
	}
	cfg, err := loadConfig(file)
	if err != nil {
		return err
	}
	c, err := openHost(cfg)
	if err != nil {
		return err
	}
	if c.cfg.Unfinished {
		return refuse("the cluster in "+c.dir+" was not made to its end",
			"Repeat the sluice init that made it")
	}
	log.Info("starting", "file", file, "folder", c.dir, "cluster", cfg.Cluster, "host", cfg.Host)
	err = c.runHost(cmd.Context(), hostRun{cfg: cfg, log: log, notifier: notifier,
		ready: func(h *host) {
			log.Info("serving", "url", h.url, "processes", len(h.running))
			if isDetached() {
				announce(cmd, h.servedStory())
			}
		},
		reload: func() (*config.Config, error) { return loadConfig(file) }})
	if err == nil {
		log.Info("stopped", "file", file)
	}
	return err
}
