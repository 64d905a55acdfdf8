package main

import (
	"crypto/tls"
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/peer"
)

// adminTLS is how who comes to an admin address beyond loopback proves that it may: it is a host of
// the cluster, or one of the clients that are named. Metrics tell much about who does what: a
// client does not see them because it may read a file.
func adminTLS(k peer.Identity, clients []string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"},
		SessionTicketsDisabled: true, // a session that is resumed would not be held against denials
		ClientAuth:             tls.RequireAnyClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return identity.Shown(k.Certificate())
		},
		VerifyConnection: func(s tls.ConnectionState) error {
			p, err := k.Verify(identity.RawChain(s.PeerCertificates), identity.Host, identity.Client)
			if err == nil && p.Kind == identity.Client && !slices.Contains(clients, p.Name) {
				err = errs.Newf(errs.Perm, "admin", p.Name,
					"this client may not see the admin address: see --admin-client")
			}
			return err
		}}
}
