package main

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/join"
)

// whyMax bounds the question why a certificate is refused.
const whyMax = 5 * time.Second

// explainProof says why a client could not prove itself, or a server, and what to do about it.
func (f *secretFlag) explainProof(err error, url string) error {
	if file, e := f.credential(url); e == nil && file != "" {
		return explainCertificate(err, file, url)
	}
	if strings.Contains(err.Error(), "the listener wants TLS") {
		return hint(err, "%s serves who shows a certificate. Ask the cluster's owner for a token "+
			"(sluice token create --client NAME), and type: sluice join HOST:PORT TOKEN", url)
	}
	return hint(err, "%s serves only who can read its secret, its owner. Name a copy with --secret "+
		"FILE or $%s; of a cluster that was started with --trust-local, say --trust-local", url,
		secretEnv)
}

// unreached is why a metadata service could not be asked: advice is for one that does not answer.
func (f *providersFlag) unreached(err error, url, advice string) error {
	if errs.KindOf(err) == errs.Perm {
		return f.secret.explainProof(err, url)
	}
	return hint(err, "%s", advice)
}

// explainCertificate is explainProof for who has shown the certificate of a file. TLS itself says
// no more than that one is bad: the service that renews certificates says why.
func explainCertificate(err error, file, url string) error {
	c, e := identity.ReadCredential(file)
	if e != nil {
		return errors.Join(err, e)
	}
	var theirs *tls.CertificateVerificationError
	switch {
	case errors.Is(err, errs.Expired):
		return hint(err, "It was not renewed in time. Ask the cluster's owner for a new token (sluice "+
			"token create), and type: sluice join HOST:PORT TOKEN")
	case strings.Contains(err.Error(), "speaks another protocol"):
		return hint(err, "Is %s the address of the metadata service? Its port is 9400 mostly; others "+
			"join at another one. The credential says: %s", url, strings.Join(c.Addresses, ", "))
	case strings.Contains(err.Error(), "does not speak TLS"):
		return hint(err, "What listens at %s knows no certificates: leave --credential out, or say "+
			"where the cluster of %s is: %s", url, file, strings.Join(c.Addresses, ", "))
	case errors.As(err, &theirs):
		return hint(err, "What listens at %s is not believed. The credential %s is of cluster %s: for "+
			"another cluster name another one with --credential FILE. If a clock is wrong, set it; a host "+
			"whose certificate has ended joins again (sluice token create --host)", url, file, c.Cluster)
	}
	ctx, cancel := context.WithTimeout(context.Background(), whyMax)
	defer cancel()
	if _, why := (join.Remote{}).Notice(ctx, c, 0); errs.KindOf(why) == errs.Perm {
		err = errs.Newf(errs.Perm, "", "", "%w, because: %w", err, why)
	}
	return hint(err, "The certificate in %s is refused. sluice client ls and sluice host ls show who "+
		"is a member. If no clock is wrong, ask for a new token (sluice token create), and type: sluice "+
		"join HOST:PORT TOKEN --force", file)
}
