package identity

import (
	"os"
	"path/filepath"
)

// CredentialEnv names the file of a credential where nothing else does.
const CredentialEnv = "SLUICE_CREDENTIAL"

// CredentialName is what a client's credential is called.
const CredentialName = "client.json"

// CredentialFile is where the credential of this user is, or is going to be: the file that is
// named, else that of the environment, else client.json in /etc/sluice for root, in
// ~/.config/sluice for others. asked tells whether somebody has said so.
func CredentialFile(named string) (file string, asked bool, err error) {
	for _, file := range []string{named, os.Getenv(CredentialEnv)} {
		if file != "" {
			return file, true, nil
		}
	}
	if os.Geteuid() == 0 {
		return filepath.Join("/etc/sluice", CredentialName), false, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", false, err
	}
	return filepath.Join(dir, "sluice", CredentialName), false, nil
}
