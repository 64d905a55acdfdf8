package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/join"
	"github.com/sluice-storage/sluice/nbd"
)

// The values of --tls.
const (
	tlsOff       = "off"
	tlsSelective = "selective"
	tlsRequired  = "required"
)

// tlsOptions is how clients of a gateway start TLS and prove who they are.
type tlsOptions struct {
	mode          string // empty: required if there are keys, else off
	cert, key, ca string // PEM files
	credential    string // of a host of the cluster, instead
	insecure      bool   // listen beyond loopback, whoever comes
}

func (t *tlsOptions) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&t.mode, "tls", "", `whether clients start TLS 1.3:
off        they cannot
selective  they may; exports with tls or allow need it
required   they must (default if there are keys)`)
	flags.StringVar(&t.cert, "tls-cert", "",
		"PEM `FILE` of this server's certificate, and what it is signed by")
	flags.StringVar(&t.key, "tls-key", "", "PEM `FILE` of its private key")
	flags.StringVar(&t.ca, "tls-ca", "", "PEM `FILE` of the authorities that sign clients' "+
		"certificates (default: clients need none)")
	flags.StringVar(&t.credential, "tls-credential", "", "credential `FILE` of a host of the "+
		"cluster: it proves this server, and members of the cluster prove who they are")
	flags.BoolVar(&t.insecure, "insecure", false,
		"listen beyond loopback although nobody there has to prove who he is")
}

// settle fills in the mode and refuses what does not fit together.
func (t *tlsOptions) settle() error {
	keys := t.cert != "" || t.credential != ""
	if t.mode == "" {
		t.mode = tlsOff
		if keys {
			t.mode = tlsRequired
		}
	}
	switch {
	case t.mode != tlsOff && t.mode != tlsSelective && t.mode != tlsRequired:
		return refuse("--tls "+t.mode, "Choose of off, selective and required")
	case (t.cert == "") != (t.key == ""):
		return refuse("a certificate and its private key belong together",
			"Give both --tls-cert and --tls-key")
	case t.credential != "" && (t.cert != "" || t.ca != ""):
		return refuse("--tls-credential is a certificate and its authority by itself",
			"Leave it out, or --tls-cert, --tls-key and --tls-ca")
	case t.mode != tlsOff && !keys:
		return refuse("--tls "+t.mode+" without a certificate",
			"Give --tls-cert and --tls-key, or --tls-credential")
	case t.mode == tlsOff && (keys || t.ca != ""):
		return refuse("keys, and --tls off", "Leave one of them out")
	}
	return nil
}

// authenticates tells whether everybody who is served has proved who he is.
func (t *tlsOptions) authenticates() bool {
	return t.mode == tlsRequired && (t.ca != "" || t.credential != "")
}

// gatewayKeys are the keys of a running gateway. They change when the files do.
type gatewayKeys struct {
	opt    tlsOptions
	keeper *identity.Keeper // of a credential; nil: there are files

	current atomic.Pointer[tls.Config] // of the files
}

// open reads the keys; nil without TLS.
func (t *tlsOptions) open(ctx context.Context, log *slog.Logger) (*gatewayKeys, error) {
	if t.mode == tlsOff {
		return nil, nil
	}
	k := &gatewayKeys{opt: *t}
	if t.credential == "" {
		return k, k.reload()
	}
	keeper, err := join.Keep(ctx, t.credential, log)
	if err != nil {
		return nil, err
	}
	if keeper.Credential().Kind != identity.Host {
		return nil, refuse(t.credential+" is not the credential of a host, and clients would not "+
			"believe it", "Use that of this host, or PEM files: --tls-cert, --tls-key, --tls-ca")
	}
	k.keeper = keeper
	return k, nil
}

// reload reads the files again. Where that fails those that are in use go on.
func (k *gatewayKeys) reload() error {
	if k.keeper != nil {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(k.opt.cert, k.opt.key)
	if err != nil {
		return hint(errs.Wrap("tls", k.opt.cert, err), "Both have to be PEM, and belong together")
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair},
		SessionTicketsDisabled: true} // a session that is resumed would not be checked again
	if k.opt.ca != "" {
		text, err := os.ReadFile(k.opt.ca)
		if err != nil {
			return err
		}
		cfg.ClientCAs, cfg.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !cfg.ClientCAs.AppendCertsFromPEM(text) {
			return refuse(k.opt.ca+" has no certificate in it", "It has to be PEM")
		}
	}
	k.current.Store(cfg)
	return nil
}

// server is the server's part.
func (k *gatewayKeys) server() *nbd.TLS {
	if k == nil {
		return nil
	}
	t := &nbd.TLS{Selective: k.opt.mode == tlsSelective, Names: k.names}
	if k.keeper != nil {
		t.Config = k.keeper.ServerTLS()
		return t
	}
	t.Config = &tls.Config{MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return k.current.Load(), nil
		}}
	return t
}

// names are those of whoever shows a certificate, if it is believed now. Members of the cluster are
// known as NAME and as host/NAME or client/NAME.
func (k *gatewayKeys) names(s tls.ConnectionState) ([]string, error) {
	if k.keeper != nil {
		p, err := k.keeper.Verify(identity.RawChain(s.PeerCertificates), identity.Host,
			identity.Client)
		if err != nil {
			return nil, err
		}
		return []string{p.Name, p.Kind.String() + "/" + p.Name}, nil
	}
	pool := k.current.Load().ClientCAs
	if pool == nil {
		return nil, nil
	}
	if len(s.PeerCertificates) == 0 {
		return nil, errors.New("no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: between,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return nil, err
	}
	return nbd.CertificateNames(s)
}

// changed is closed when members or authorities of the cluster change; nil where files say who they
// are.
func (k *gatewayKeys) changed() <-chan struct{} {
	if k == nil || k.keeper == nil {
		return nil
	}
	return k.keeper.Changed()
}
