package join

import (
	"context"
	"log/slog"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/internal/logonce"
	"github.com/sluice-storage/sluice/meta"
)

// KeyUsers is what Secrets needs of the metadata service, which runs in the same process.
type KeyUsers interface {
	Registry(ctx context.Context, c meta.Caller) (meta.Registry, error)

	// KnowKeys tells whether all I/O servers that are up know the keys of a generation.
	KnowKeys(gen uint32) bool
}

// SecretsOptions are options of Secrets.
type SecretsOptions struct {
	// Authority has the secrets. Needed.
	Authority *identity.Authority

	// TTL is the longest life of a capability. Default: capability.TTLMax.
	TTL time.Duration

	// Ask is how long servers are waited for, Margin how much longer than its last capability an old
	// key stays valid. Defaults: those of package capability.
	Ask, Margin time.Duration

	// Refresh is how often all of that is looked at. Default: 1 s.
	Refresh time.Duration

	// Now is a clock that is not set. Default: time.Now, whose times tell how much has passed.
	Now func() time.Time

	// Log hears of keys that change. Default: slog.Default().
	Log *slog.Logger
}

func (o SecretsOptions) withDefaults() SecretsOptions {
	if o.Refresh == 0 {
		o.Refresh = time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o
}

// Secrets keeps the keys that capabilities are signed with in step with the cluster's secrets: a
// new secret signs when the I/O servers have heard of it, the one before is retired when nothing
// is left that it has signed, and there is a new one after a host was removed. Whatever dies, the
// next process goes on from the authority's file. One goroutine uses it; Keys is for all.
type Secrets struct {
	opt      SecretsOptions
	keys     capability.Keyring
	rotation capability.Rotation
	quiet    logonce.Logger
}

// NewSecrets reads the secrets.
func NewSecrets(opt SecretsOptions) (*Secrets, error) {
	opt = opt.withDefaults()
	if opt.Authority == nil {
		return nil, errs.Newf(errs.Invalid, "join.NewSecrets", "", "Authority is needed")
	}
	s := &Secrets{opt: opt, quiet: logonce.Logger{Log: opt.Log},
		rotation: capability.Rotation{TTL: opt.TTL, Ask: opt.Ask, Margin: opt.Margin}}
	s.take(func(uint32) bool { return false })
	return s, nil
}

// Keys are those of the cluster, as they are at any moment.
func (s *Secrets) Keys() *capability.Keyring { return &s.keys }

// take makes the secrets that were read last the keys, and tells whether the older one is to go.
func (s *Secrets) take(know func(gen uint32) bool) (current uint64, count int, retire bool) {
	secrets := s.opt.Authority.Secrets()
	valid := meta.SecretRing(secrets)
	all := len(valid) > 1 && know(valid[0].Gen)
	ring, retire := s.rotation.Next(s.opt.Now(), valid, all)
	if s.keys.Set(ring) {
		s.opt.Log.Info("keys of capabilities", "signs", meta.SecretOf(ring[0].Gen), "valid", len(ring))
	}
	return secrets[0].Generation, len(secrets), retire
}

// Step looks once at what has changed, and does what is due.
func (s *Secrets) Step(ctx context.Context, of KeyUsers) error {
	a := s.opt.Authority
	if _, err := a.Reload(); err != nil {
		return err
	}
	current, count, retire := s.take(of.KnowKeys)
	if retire {
		if err := a.RetireSecret(current); err != nil {
			return err
		}
		s.take(of.KnowKeys)
		return nil
	}
	if count > 1 {
		return nil
	}
	r, err := of.Registry(ctx, caller)
	if err != nil || r.SecretMin <= current {
		return err
	}
	s.opt.Log.Warn("a host was removed: the cluster gets a new secret", "generation", current+1)
	if err := a.RotateSecret(r.SecretMin, time.Now()); err != nil {
		return err
	}
	s.take(of.KnowKeys)
	return nil
}

// Run repeats Step until ctx ends.
func (s *Secrets) Run(ctx context.Context, of KeyUsers) {
	tick := time.NewTicker(s.opt.Refresh)
	defer tick.Stop()
	for {
		if err := s.Step(ctx, of); err != nil && ctx.Err() == nil {
			s.quiet.Warn("this host", "the keys of capabilities could not be looked at", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
