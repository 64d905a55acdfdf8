package identity

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// Source is where a credential is renewed, and where changes are heard of: package join has one
// that asks over the network, and one for the process that has the authority itself.
type Source interface {
	// Renew asks for another certificate of who shows the credential, for the key of the request.
	// errs.Perm: it is refused, for good.
	Renew(ctx context.Context, c *Credential, request []byte) (*Grant, error)

	// Notice tells what has changed; denials is the version of the deny list that is known, 0: none.
	Notice(ctx context.Context, c *Credential, denials uint64) (*Notice, error)
}

// DeniedMax bounds the deny list that a notice carries.
const DeniedMax = 1 << 16

// Notice is what members of a cluster must know to go on.
type Notice struct {
	Authorities [][]byte  `json:"authorities"` // that are valid, the current one first
	Denials     uint64    `json:"denials"`     // the version of the deny list; never 0
	Denied      []Serial  `json:"denied,omitempty"`
	Same        bool      `json:"same,omitempty"` // the deny list is the one that is known
	Addresses   []string  `json:"addresses"`
	Join        []string  `json:"join"`
	Now         time.Time `json:"now"`
}

// KeeperOptions of a Keeper.
type KeeperOptions struct {
	// Source renews the credential. Default nil: nobody does, and it is used until it runs out.
	Source Source

	// Poll is how often changes are asked for. Default: 20 s for hosts, which let others in, and
	// 5 min for clients.
	Poll time.Duration

	// Now is the clock that certificates are held against. Default: time.Now.
	Now func() time.Time

	// Log hears of renewals, and of attempts that fail. Default: slog.Default().
	Log *slog.Logger
}

// Keeper keeps a credential file fresh while processes use it, and what it believes: connections
// that are made take the latest certificate and the latest list of those that are refused. Several
// processes may keep one file: the first that finds it due renews it, the others take that over.
// Safe for concurrent use.
type Keeper struct {
	file  string
	opt   KeeperOptions
	trust *Trust

	current atomic.Pointer[Credential]

	mu      sync.Mutex // of what Run does, one step at a time
	text    []byte     // of the file
	denials uint64
}

// Pauses between attempts that fail.
const (
	retryMin = time.Minute
	retryMax = time.Hour
)

// NewKeeper reads a credential. Run keeps it.
func NewKeeper(file string, opt KeeperOptions) (*Keeper, error) {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Log == nil {
		opt.Log = slog.Default()
	}
	c, text, err := readCredential(file)
	if err != nil {
		return nil, err
	}
	if opt.Poll == 0 {
		opt.Poll = 5 * time.Minute
		if c.Kind == Host {
			opt.Poll = 20 * time.Second
		}
	}
	k := &Keeper{file: file, opt: opt, trust: NewTrust(c.Cluster, c.roots...), text: text}
	k.current.Store(c)
	return k, nil
}

// Credential is the latest one.
func (k *Keeper) Credential() *Credential { return k.current.Load() }

// Trust is what is believed now.
func (k *Keeper) Trust() *Trust { return k.trust }

// Certificate is what this side shows. errs.Expired: it has run out, and comes with the error, for
// a server to show it (Shown).
func (k *Keeper) Certificate() (*tls.Certificate, error) {
	c := k.Credential()
	if now := k.opt.Now(); c.Expired(now) {
		return c.TLS(), errs.Newf(errs.Expired, "identity", k.file, "the certificate of %s has ended at "+
			"%s, and here it is %s: if the clock is right, join again with a new token", c.Name,
			stamp(c.peer.NotAfter), stamp(now))
	}
	return c.TLS(), nil
}

// Shown is what a server shows of a Certificate: one that has run out, too, which nobody believes.
// Who comes is told by it why there is no connection.
func Shown(c *tls.Certificate, err error) (*tls.Certificate, error) {
	if c != nil {
		return c, nil
	}
	return nil, err
}

// Changed is closed when authorities or denials change: see Trust.Changed.
func (k *Keeper) Changed() <-chan struct{} { return k.trust.Changed() }

// Verify tells who shows certificates; it must be of one of the kinds.
func (k *Keeper) Verify(chain [][]byte, kinds ...Kind) (Peer, error) {
	return k.trust.Verify(chain, k.opt.Now(), kinds...)
}

// ServerTLS is how a server that hosts and clients come to proves itself, and demands it of them.
func (k *Keeper) ServerTLS(protocols ...string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: protocols,
		SessionTicketsDisabled: true, // a session that is resumed would not be held against denials
		ClientAuth:             tls.RequireAnyClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return Shown(k.Certificate())
		},
		VerifyConnection: k.verifier(Host, Client)}
}

// ClientTLS is how one who dials a host proves itself, and demands it of the host.
func (k *Keeper) ClientTLS(protocols ...string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: protocols,
		InsecureSkipVerify: true, // the names in our certificates are none of machines: see below
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return k.Certificate()
		},
		VerifyConnection: k.verifier(Host)}
}

func (k *Keeper) verifier(kinds ...Kind) func(tls.ConnectionState) error {
	return func(s tls.ConnectionState) error {
		_, err := k.Verify(RawChain(s.PeerCertificates), kinds...)
		return err
	}
}

// RawChain is what a peer has shown, as Verify wants it.
func RawChain(certs []*x509.Certificate) [][]byte {
	chain := make([][]byte, len(certs))
	for i, c := range certs {
		chain[i] = c.Raw
	}
	return chain
}

// Run keeps the credential until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	retry := retryMin
	var next time.Time // before which nothing is renewed
	var told time.Time // that it has ended
	for ctx.Err() == nil {
		k.Refresh(ctx)
		if _, err := k.Certificate(); err != nil && time.Since(told) > retryMax {
			k.opt.Log.Error("nobody believes this process any more", "err", err)
			told = time.Now()
		}
		if now := k.opt.Now(); k.opt.Source != nil && k.due(now) && !now.Before(next) {
			if err := k.Renew(ctx); err == nil {
				retry, next = retryMin, time.Time{}
			} else if ctx.Err() == nil {
				k.opt.Log.Warn("the credential could not be renewed", "file", k.file,
					"ends", stamp(k.Credential().peer.NotAfter), "next", retry, "err", err)
				next, retry = now.Add(retry), min(2*retry, retryMax)
			}
		}
		timer := time.NewTimer(k.opt.Poll)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
}

// due tells whether it is time: two thirds of its life are over, or it is not by the current
// authority.
func (k *Keeper) due(now time.Time) bool {
	c := k.Credential()
	return !c.Expired(now) && (!now.Before(c.RenewAt()) || !c.Current())
}

// Refresh takes over what another process has made of the file, and asks what has changed.
func (k *Keeper) Refresh(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.reloadLocked(); err != nil {
		k.opt.Log.Warn("the credential's file cannot be used, the one in memory goes on", "err", err)
	}
	c := k.Credential()
	if k.opt.Source == nil || c.Expired(k.opt.Now()) {
		return
	}
	n, err := k.opt.Source.Notice(ctx, c, k.denials)
	if err == nil {
		err = k.hearLocked(n)
	}
	if err != nil && ctx.Err() == nil {
		k.opt.Log.Debug("nothing was heard of the cluster's keys", "err", err)
	}
}

func (k *Keeper) reloadLocked() error {
	c, text, err := readCredential(k.file)
	if err != nil || bytes.Equal(text, k.text) {
		return err
	}
	if was := k.Credential(); c.Cluster != was.Cluster || c.Kind != was.Kind || c.Name != was.Name {
		return errs.Newf(errs.Invalid, "identity", k.file, "it is of %s now, and was of %s",
			c.peer.Who, was.peer.Who)
	}
	k.useLocked(c, text)
	return nil
}

func (k *Keeper) useLocked(c *Credential, text []byte) {
	k.text = text
	k.current.Store(c)
	k.trust.SetRoots(c.roots)
}

// hearLocked takes in a notice. Other authorities and addresses are written down.
func (k *Keeper) hearLocked(n *Notice) error {
	if len(n.Denied) > DeniedMax || n.Denials == 0 {
		return errs.Newf(errs.Protocol, "identity.Notice", "", "a deny list of %d", len(n.Denied))
	}
	if !n.Same {
		k.trust.SetDenied(n.Denied)
		k.denials = n.Denials
	}
	was := k.Credential()
	if slices.EqualFunc(n.Authorities, was.Authorities, bytes.Equal) &&
		slices.Equal(n.Addresses, was.Addresses) && slices.Equal(n.Join, was.Join) {
		return nil
	}
	next := *was
	next.Authorities, next.Addresses, next.Join = n.Authorities, n.Addresses, n.Join
	if err := next.check(); err != nil {
		// Its certificate is by an authority that was retired before it heard of that: it is lost.
		return errs.Wrap("identity.Notice", k.file, err)
	}
	return k.writeLocked(&next)
}

// writeLocked replaces the file. Where that fails what is in memory goes on all the same.
func (k *Keeper) writeLocked(c *Credential) error {
	text, err := c.encode()
	if err == nil {
		err = writePrivate("identity.WriteCredential", k.file, text)
	}
	if err != nil {
		text = k.text
	}
	k.useLocked(c, text)
	return err
}

// Renew asks for another certificate, of a new key. Other processes that keep the file wait, and
// then find that it was done.
func (k *Keeper) Renew(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.opt.Source == nil {
		return errs.Newf(errs.Unsupported, "identity.Renew", k.file, "nobody renews it")
	}
	unlock, err := lockFile("identity.Renew", k.file+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if err := k.reloadLocked(); err != nil {
		return err
	}
	if !k.due(k.opt.Now()) {
		return nil
	}
	key := NewKey()
	request, err := NewRequest(key)
	if err != nil {
		return err
	}
	g, err := k.opt.Source.Renew(ctx, k.Credential(), request)
	if err != nil {
		return err
	}
	next, err := NewCredential(key, g)
	if err != nil {
		return err
	}
	if next.peer.Who != k.Credential().peer.Who {
		return errs.Newf(errs.Protocol, "identity.Renew", k.file, "it became one of %s", next.peer.Who)
	}
	if err := k.writeLocked(next); err != nil {
		return err
	}
	k.opt.Log.Info("the certificate was renewed", "name", next.Name, "ends",
		stamp(next.peer.NotAfter))
	return nil
}
