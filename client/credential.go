package client

import (
	"context"

	"github.com/sluice-storage/sluice/join"
	"github.com/sluice-storage/sluice/peer"
)

// identify chooses how this process proves itself to the cluster at addr, unless the caller has
// said so: by a credential, which is kept until unkeep is called, or by the cluster's secret.
func (o *Options) identify(addr string) (unkeep func(), err error) {
	if o.Peer.Security != nil || o.Peer.Secret != nil && o.Credential == "" {
		return func() {}, nil
	}
	file, err := join.Find(o.Credential, "", addr)
	if err != nil || file == "" {
		return func() {}, err
	}
	ctx, unkeep := context.WithCancel(context.Background())
	k, err := join.Keep(ctx, file, o.Logger)
	if err != nil {
		unkeep()
		return nil, err
	}
	o.Peer.Secret, o.Peer.Security = nil, peer.ClientSecurity(k)
	return unkeep, nil
}
