package join

import (
	"errors"
	"net"
	"net/netip"
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
)

// Find is the file of the credential that proves a client to the cluster at addr, HOST:PORT; empty
// where the cluster's secret does: on loopback, unless a file was named (see
// identity.CredentialFile) or it is where the credential's cluster is. also is where to look where
// the user has none; it may be empty. errs.Perm: another host is dialled, and there is none.
func Find(named, also, addr string) (file string, err error) {
	c, file, asked, err := Locate(named, also)
	near := isNear(addr)
	switch {
	case err != nil:
		return "", err
	case c == nil && !near:
		return "", errs.Newf(errs.Perm, "dial", addr, "no credential says who this is")
	case c != nil && (asked || !near || slices.Contains(c.Addresses, addr)):
		return file, nil
	}
	return "", nil
}

// Locate is the credential of this user, its file, and whether somebody has named that; nil where
// there is none: no file, or one in another's home.
func Locate(named, also string) (c *identity.Credential, file string, asked bool, err error) {
	file, asked, homeless := identity.CredentialFile(named)
	c, err = identity.ReadCredential(file)
	absent := errors.Is(err, errs.NotFound) || errors.Is(err, errs.Access)
	if homeless == nil && (asked || !absent) {
		return c, file, asked, err
	}
	if c, err = identity.ReadCredential(also); err != nil {
		return nil, also, false, nil // it is for whoever may read it
	}
	return c, also, false, nil
}

// isNear tells whether an address is of this host. One with names of providers is: only who is
// near has such.
func isNear(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
