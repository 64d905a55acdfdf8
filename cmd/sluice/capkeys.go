package main

import (
	"context"
	"log/slog"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/join"
)

// clusterKeys are the keys of capabilities in the process of the metadata service: those of the
// authority's secrets, or the one of cluster.key in a cluster without an authority.
type clusterKeys struct {
	capability.Keys
	secrets *join.Secrets // nil: there is no authority
}

// capabilityKeys finds the keys.
func (c *cluster) capabilityKeys(f *joinFlag, log *slog.Logger) (*clusterKeys, error) {
	at, err := c.joinAt(f)
	if err != nil {
		return nil, err
	}
	if at == "" {
		return &clusterKeys{Keys: c.key}, nil
	}
	a, err := c.makeKeys()
	if err != nil {
		return nil, err
	}
	s, err := join.NewSecrets(join.SecretsOptions{Authority: a, Log: log})
	if err != nil {
		return nil, err
	}
	return &clusterKeys{Keys: s.Keys(), secrets: s}, nil
}

// follow keeps the keys up to date until stop is called.
func (k *clusterKeys) follow(ctx context.Context, of join.KeyUsers) (stop func()) {
	if k.secrets == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		k.secrets.Run(ctx, of)
	}()
	return func() { cancel(); <-ended }
}

// hostName is what this host is called in its cluster: as its certificate says, as it was made, or
// as the machine is called.
func (c *cluster) hostName() string {
	if cred, err := identity.ReadCredential(c.hostCredentialFile()); err == nil {
		return cred.Name
	}
	if identity.CheckName(c.cfg.Host) == nil {
		return c.cfg.Host
	}
	return localName()
}
