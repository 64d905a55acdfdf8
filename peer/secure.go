package peer

import (
	"crypto/tls"
	"crypto/x509"

	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/identity"
)

// Identity is what a process is known by, and whom it believes: an identity.Keeper.
type Identity interface {
	Certificate() (*tls.Certificate, error)
	Verify(chain [][]byte, kinds ...identity.Kind) (identity.Peer, error)

	// Changed is closed when Verify may judge differently from before; see tcp.Security.
	Changed() <-chan struct{}
}

// Security is how a process with a credential speaks over tcp: mutual TLS 1.3 with the certificate
// of the moment, held against authorities and denials of the moment. A listener serves hosts and
// clients, a dialler wants a host. plaintext authenticates everything and encrypts nothing, see
// tcp.Security. fabric.Peer.Name is the certificate's URI then: see identity.ParseWho.
func Security(k Identity, plaintext bool) *tcp.Security {
	return &tcp.Security{Certificate: k.Certificate, Plaintext: plaintext, Changed: k.Changed,
		Verify: func(shown []*x509.Certificate, listens bool) error {
			kinds := []identity.Kind{identity.Host}
			if listens {
				kinds = append(kinds, identity.Client)
			}
			_, err := k.Verify(identity.RawChain(shown), kinds...)
			return err
		}}
}

// ClientSecurity is Security for a process that only dials: the servers say whether they encrypt.
func ClientSecurity(k Identity) *tcp.Security {
	s := Security(k, false)
	s.Either = true
	return s
}
