package join

import (
	"path/filepath"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
)

// TestFind: a credential that was named is used always, the user's own for other hosts and where
// its cluster is, and on loopback the secret is left to do it.
func TestFind(t *testing.T) {
	r := newRig(t, nil)
	file := filepath.Join(t.TempDir(), "c.json")
	c := r.member("ann")
	c.Addresses = []string{"127.0.0.1:9400"}
	if err := c.Write(file); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "none.json")
	for _, one := range []struct {
		named, env, also, addr, want string
		kind                         errs.Kind
	}{
		{named: file, addr: "127.0.0.1:1", want: file},
		{named: missing, addr: "127.0.0.1:1", kind: errs.NotFound},
		{env: file, addr: "10.0.0.1:1", want: file},
		{also: file, addr: "10.0.0.1:1", want: file},
		{also: file, addr: "h1.example:1", want: file},
		{also: file, addr: "127.0.0.1:9400", want: file},
		{also: file, addr: "127.0.0.1:1"},
		{also: file, addr: "[::1]:1"},
		{also: missing, addr: "localhost:1"},
		{addr: "tcp:127.0.0.1:1,shm:/x"},
		{also: missing, addr: "10.0.0.1:1", kind: errs.Perm},
	} {
		t.Setenv("HOME", t.TempDir())
		t.Setenv(identity.CredentialEnv, one.env)
		if _, asked, _ := identity.CredentialFile(""); !asked && hasOwn() {
			t.Skip("this user has a credential")
		}
		got, err := Find(one.named, one.also, one.addr)
		if got != one.want || errs.KindOf(err) != one.kind {
			t.Errorf("%+v: %q, %v", one, got, err)
		}
	}
}

// hasOwn tells whether the user that runs the test is a client of some cluster.
func hasOwn() bool {
	file, _, err := identity.CredentialFile("")
	if err != nil {
		return false
	}
	_, err = identity.ReadCredential(file)
	return err == nil
}
