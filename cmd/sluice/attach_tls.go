package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"os"

	"github.com/spf13/pflag"

	"github.com/sluice-storage/sluice/attach"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/join"
)

// attachTLS is how a server is known, and how it knows us.
type attachTLS struct {
	cert, key, ca string // PEM files
	credential    string // of a host or client of the cluster, instead
}

func (t *attachTLS) add(flags *pflag.FlagSet) {
	flags.StringVar(&t.ca, "tls-ca", "", "nbds: PEM `FILE` of the authorities that sign the server's "+
		"certificate (default those of this host)")
	flags.StringVar(&t.cert, "tls-cert", "", "nbds: PEM `FILE` of this client's certificate")
	flags.StringVar(&t.key, "tls-key", "", "nbds: PEM `FILE` of its private key")
	flags.StringVar(&t.credential, "tls-credential", "",
		"nbds: credential `FILE` of a member of the cluster that the gateway belongs to, instead")
}

func (t *attachTLS) given() bool {
	return t.cert != "" || t.key != "" || t.ca != "" || t.credential != ""
}

// client is the client's side of TLS; nil for servers without it.
func (t *attachTLS) client(ctx context.Context, at attach.Server, log *slog.Logger) (
	*tls.Config, error) {
	switch {
	case !at.Secure && t.given():
		return nil, refuse("TLS keys, and a server without TLS", "Write nbds:// instead of nbd://")
	case !at.Secure:
		return nil, nil
	case (t.cert == "") != (t.key == ""):
		return nil, refuse("a certificate and its private key belong together",
			"Give both --tls-cert and --tls-key")
	case t.credential != "" && (t.cert != "" || t.ca != ""):
		return nil, refuse("--tls-credential is a certificate and its authority by itself",
			"Leave it out, or --tls-cert, --tls-key and --tls-ca")
	case t.credential != "":
		keeper, err := join.Keep(ctx, t.credential, log)
		if err != nil {
			return nil, err
		}
		return keeper.ClientTLS(), nil
	}
	return t.fromFiles(at)
}

func (t *attachTLS) fromFiles(at attach.Server) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if at.Network == "tcp" {
		host, _, err := net.SplitHostPort(at.Addr)
		if err != nil {
			return nil, err
		}
		cfg.ServerName = host
	} else {
		cfg.ServerName = "localhost"
	}
	if t.cert != "" {
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return nil, hint(errs.Wrap("tls", t.cert, err), "Both have to be PEM, and belong together")
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	if t.ca != "" {
		text, err := os.ReadFile(t.ca)
		if err != nil {
			return nil, err
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(text) {
			return nil, refuse(t.ca+" has no certificate in it", "It has to be PEM")
		}
	}
	return cfg, nil
}
