package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/config"
)

// load finds out what to serve: what the flags say, or the file. Flags go before the file's keys.
func (o *nbdOptions) load(cmd *cobra.Command) ([]exportSpec, error) {
	if o.config == "" {
		return parseExports(o.exports)
	}
	n, err := o.readGateway()
	if err != nil {
		return nil, err
	}
	given := cmd.Flags().Changed
	if !given("listen") && !o.stdio && o.run == "" {
		o.listen, o.fileListens = []string{n.Listen}, true
	}
	if !given("timeout") {
		o.timeout = time.Duration(n.Timeout)
	}
	if !given("cache") && n.Cache != "" {
		o.cache = string(n.Cache)
	}
	if !given("admin") {
		o.web.listen = n.Admin
	}
	if !given("tls") && !given("tls-cert") && !given("tls-credential") {
		t := &o.tls
		t.mode, t.cert, t.key, t.ca = n.TLS, n.TLSCert, n.TLSKey, n.TLSCA
	}
	o.tls.insecure = o.tls.insecure || n.Insecure
	return parseExports(exportTexts(n))
}

// readGateway reads the file's table of this gateway.
func (o *nbdOptions) readGateway() (*config.NBD, error) {
	file, err := findConfig(o.config)
	if err != nil {
		return nil, err
	}
	cfg, err := loadConfig(file)
	if err != nil {
		return nil, err
	}
	o.config = file
	if o.gateway == "" && len(cfg.NBDs) == 1 {
		return &cfg.NBDs[0], nil
	}
	var names []string
	for i := range cfg.NBDs {
		if cfg.NBDs[i].Name == o.gateway {
			return &cfg.NBDs[i], nil
		}
		names = append(names, cfg.NBDs[i].Name)
	}
	if len(names) == 0 {
		return nil, refuse(file+" has no [[nbd]]", "Add one, with its [[nbd.export]]s")
	}
	return nil, refuse(file+" has no [[nbd]] named "+o.gateway,
		"Name one with --gateway: "+strings.Join(names, ", "))
}

// parseExports reads several exports.
func parseExports(texts []string) ([]exportSpec, error) {
	specs := make([]exportSpec, len(texts))
	for i, text := range texts {
		var err error
		if specs[i], err = parseExport(text); err != nil {
			return nil, err
		}
	}
	return specs, nil
}

// exportTexts are the exports of a gateway as the flag has them.
func exportTexts(n *config.NBD) []string {
	texts := make([]string, len(n.Exports))
	for i := range n.Exports {
		texts[i] = exportText(&n.Exports[i])
	}
	return texts
}
