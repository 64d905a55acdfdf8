package identity

import (
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// RetireSecret ends the secret before the current one, if the current one is still that of the
// given generation: for who has decided it by what was true a while ago. errs.Conflict: it is
// another.
func (a *Authority) RetireSecret(current uint64) error {
	return a.change("identity.Retire", func(f *authorityData) error {
		if g := f.Secrets[0].Generation; g != current {
			return errs.Newf(errs.Conflict, "", "", "the secret is of generation %d by now", g)
		}
		f.Secrets = f.Secrets[:1]
		return nil
	})
}

// RotateSecret makes a new secret, if the current one is of a lower generation than the given one.
// errs.Busy: two are valid already.
func (a *Authority) RotateSecret(least uint64, now time.Time) error {
	return a.change("identity.Rotate", func(f *authorityData) error {
		switch {
		case f.Secrets[0].Generation >= least:
			return nil
		case len(f.Secrets) > 1:
			return errs.Newf(errs.Busy, "", "", "two secrets are valid already")
		}
		f.Secrets = []ClusterKey{newClusterKey(f.Secrets[0].Generation+1, now), f.Secrets[0]}
		return nil
	})
}
