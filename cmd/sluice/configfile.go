package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sluice-storage/sluice/config"
)

// configEnv names a host's file where no flag does.
const configEnv = "SLUICE_CONFIG"

// systemConfig is where a host's file is that belongs to nobody's folder.
const systemConfig = "/etc/sluice/" + config.FileName

// whichConfig is what the help says of it.
const whichConfig = "The file is the one that is named, else that of $" + configEnv + ", else\n" +
	defaultDir + "/" + config.FileName + ", else " + systemConfig + "."

// findConfig is the file that is meant: the one that was named, that of the environment, that of
// the cluster in this folder, that of the host.
func findConfig(named string) (string, error) {
	if named == "" {
		named = os.Getenv(configEnv)
	}
	if named != "" {
		return filepath.Abs(named)
	}
	own, err := filepath.Abs(filepath.Join(defaultDir, config.FileName))
	if err != nil {
		return "", err
	}
	for _, name := range []string{own, systemConfig} {
		if isFile(name) {
			return name, nil
		}
	}
	return "", refuse("no file says what this host runs: neither "+own+" nor "+systemConfig,
		"Name it with --config FILE or $"+configEnv+", or make a cluster with: sluice init")
}

// surroundings is what a file must be held against.
func surroundings(file string) config.Host {
	return config.Host{Name: localName(), File: file, Keys: func(folder string) error {
		return (&cluster{dir: folder}).checkHostKeys(config.TLS)
	}}
}

// loadConfig reads a host's file and finds whatever a process would refuse to start with.
func loadConfig(file string) (*config.Config, error) {
	info, err := os.Stat(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, hint(err, "Make a cluster with: sluice init   or name its file with --config")
	}
	if err != nil {
		return nil, err
	}
	if info.Size() > config.BytesMax || !info.Mode().IsRegular() {
		return nil, refuse(file+" is no file of at most 1 MiB", "Is this the right one?")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parseConfig(text, file)
}

func parseConfig(text []byte, file string) (*config.Config, error) {
	cfg, err := config.Parse(text, surroundings(file))
	if err == nil {
		err = checkFlags(cfg)
	}
	if err != nil {
		return nil, err
	}
	return cfg, nil
}

// checkFlags holds a file against what the processes refuse beyond what package config knows.
func checkFlags(cfg *config.Config) error {
	var problems config.Invalid
	note := func(key string, err error) {
		if err == nil {
			return
		}
		p := cfg.Problem(key, err.Error(), "See: sluice help iod, sluice help meta")
		var h *hinted
		if errors.As(err, &h) {
			p.Remedy = h.hint
		}
		problems = append(problems, p)
	}
	if cfg.Meta != nil {
		r := metaSessions(cfg.Meta)
		note("meta", r.check())
	}
	for i := range cfg.Iods {
		d := &cfg.Iods[i]
		memory := memoryOf(d)
		note(config.Key("iod", i, "memory"), memory.check())
		for _, path := range d.Store {
			if info, err := os.Stat(path); err == nil && !info.IsDir() && !isBlockDevice(path) {
				note(config.Key("iod", i, "store"),
					refuse(path+" is neither a folder nor a block device", "Name one"))
			}
		}
	}
	for i := range cfg.NBDs {
		for j := range cfg.NBDs[i].Exports {
			_, err := parseExport(exportText(&cfg.NBDs[i].Exports[j]))
			note(fmt.Sprintf("nbd[%d].export[%d].name", i+1, j+1), err)
		}
	}
	for i := range cfg.Mounts {
		note(config.Key("mount", i, "options"), checkMountOptions(cfg.Mounts[i].Options))
	}
	if len(problems) > 0 {
		return problems
	}
	return nil
}

// checkMountOptions finds what sluice mount would refuse of -o.
func checkMountOptions(options []string) error {
	cmd := newMount()
	list := optionList{all: options}
	return list.apply(cmd)
}
