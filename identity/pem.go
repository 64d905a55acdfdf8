package identity

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"

	"github.com/sluice-storage/sluice/errs"
)

// Programs that are no part of sluice, as Prometheus or curl, speak to members by ordinary TLS.
// They want files in PEM, and a name in the certificate of who they reach.

// ServerName is a name that the certificates of all hosts of a cluster have, for those programs to
// ask for. No machine has it: who knows it by the cluster's authority knows the cluster. Members
// do not look at it, see Who.
func ServerName(cluster ClusterID) string { return cluster.String() + ".sluice" }

// hostNames are the names that a host's certificate is good for: of all hosts, and of itself.
func hostNames(cluster ClusterID, name string) []string {
	return []string{ServerName(cluster), name + "." + ServerName(cluster)}
}

// TrustPEM is authorities as other programs read them.
func TrustPEM(roots []*x509.Certificate) []byte {
	var b bytes.Buffer
	writePEM(&b, "CERTIFICATE", RawChain(roots)...)
	return b.Bytes()
}

// PEM is the private key and the certificate as other programs read them, with what others need
// to believe it. It is one text, so that a file of it is replaced as a whole: a key and the
// certificate of another do not meet.
func (c *Credential) PEM() ([]byte, error) {
	key, err := x509.MarshalPKCS8PrivateKey(c.pair.PrivateKey)
	if err != nil {
		return nil, errs.Wrap("identity.PEM", c.Name, err)
	}
	var b bytes.Buffer
	writePEM(&b, "PRIVATE KEY", key)
	writePEM(&b, "CERTIFICATE", c.Certificate...)
	return b.Bytes(), nil
}

func writePEM(to *bytes.Buffer, kind string, all ...[]byte) {
	for _, der := range all {
		_ = pem.Encode(to, &pem.Block{Type: kind, Bytes: der}) // a Buffer takes everything
	}
}
