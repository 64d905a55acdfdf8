package store

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/wire"
)

// The registry's records all begin with 'H' and a byte that says what they are: see keys.go. Each
// operation is one transaction that depends on what it has read, so that of two that contradict
// each other one begins anew and is refused. A token's uses have a record for each key that came
// with it: by that a joiner that repeats itself is recognised.
//
// What has run out is swept some time later (registryLoop); until then it is there and has no
// effect.

// registryKeep is how long what has run out is kept: people see why something was refused, and
// clocks may be set.
const registryKeep = 24 * time.Hour

// stored is a record of the registry: |ver | and what its own encoder writes.
type stored interface {
	Append(e *wire.Enc)
	Decode(d *wire.Dec)
}

type registryRecord struct{ stored }

func (r registryRecord) decode(d *wire.Dec) { r.Decode(d) }

// putStored writes a record of the registry.
func (t *txn) putStored(key []byte, r stored) {
	e := wire.Enc{}
	e.U8(recordVersion)
	r.Append(&e)
	t.put(key, e.B)
}

// readStored reads a record, and makes the commit depend on it.
func (t *txn) readStored(key []byte, r stored) (found bool, err error) {
	value, err := t.read(key)
	if value == nil || err != nil {
		return false, err
	}
	return true, parse(key, value, registryRecord{r})
}

// use is what a token's use keeps: |ver |name |, the name that was joined under.
type use struct{ Name string }

func (u *use) Append(e *wire.Enc) { e.String(u.Name) }
func (u *use) Decode(d *wire.Dec) { u.Name = d.String(identity.NameMax) }

// registryUpdate is update for the registry: for administrators, and durable.
func (s *Store) registryUpdate(ctx context.Context, op string, c *meta.Caller,
	build func(t *txn) error) error {

	err := checkCaller(c)
	if err == nil {
		var replayed bool
		replayed, err = s.update(ctx, c, func(t *txn) error {
			t.kv.Sync = true
			if err := t.mayMaintain(&c.Cred); err != nil {
				return err
			}
			return build(t)
		})
		if err == nil && replayed {
			err = s.kv.Sync(ctx)
		}
	}
	return errs.Wrap(op, "", err)
}

// registryLook is look for the registry.
func (s *Store) registryLook(op string, c *meta.Caller, fn func(t *txn) error) error {
	err := checkCaller(c)
	if err == nil {
		err = s.look(func(t *txn) error {
			if err := t.mayMaintain(&c.Cred); err != nil {
				return err
			}
			return fn(t)
		})
	}
	return errs.Wrap(op, "", err)
}

// registryPage calls fn for the records of a sort behind a key until it has taken max of them; fn
// tells whether it took one.
func (t *txn) registryPage(prefix, after []byte, max, limit int,
	fn func(key, value []byte) (took bool, err error)) error {

	if max <= 0 {
		return errs.Newf(errs.Invalid, "meta.page", "", "a page of %d", max)
	}
	var bad error
	n := 0
	start := append(append([]byte(nil), after...), 0)
	err := t.snap.Scan(start, kv.PrefixEnd(prefix), func(key, value []byte, _ kv.Version) bool {
		took, err := fn(key, value)
		if bad = err; took {
			n++
		}
		return bad == nil && n < min(max, limit)
	})
	if err == nil {
		err = bad
	}
	return err
}

// Registry implements meta.Denials.
func (s *Store) Registry(_ context.Context, c meta.Caller) (r meta.Registry, err error) {
	err = s.registryLook("meta.Registry", &c, func(t *txn) (err error) {
		r, err = t.registry()
		return err
	})
	if ring := s.keys.Ring(); len(ring) > 0 {
		r.Signs = ring[0].Gen
	}
	return r, err
}

func (t *txn) registry() (r meta.Registry, err error) {
	for what, g := range map[identity.KeyKind]*meta.Generation{
		identity.SigningKey: &r.Authority, identity.SecretKey: &r.Secret} {
		if _, err := t.readStored(generationKey(what), g); err != nil {
			return r, err
		}
	}
	value, err := t.peek([]byte(keyDenials))
	r.Denials = uint64(counter(value)) + 1 // 0 is what one knows who knows nothing
	var least secretMin
	if err == nil {
		_, err = t.readStored(secretMinKey(), &least)
	}
	r.SecretMin = least.Generation
	return r, err
}

// SetGeneration implements meta.Denials.
func (s *Store) SetGeneration(ctx context.Context, c meta.Caller, what identity.KeyKind,
	g meta.Generation) (r meta.Registry, err error) {

	const op = "meta.SetGeneration"
	if !what.Valid() || g.Number == 0 {
		return r, errs.Newf(errs.Invalid, op, "", "generation %d of key %d", g.Number, what)
	}
	err = s.registryUpdate(ctx, op, &c, func(t *txn) error {
		var cur meta.Generation
		found, err := t.readStored(generationKey(what), &cur)
		if err != nil {
			return err
		}
		next := g
		switch same := cur.Number == g.Number && cur.Fingerprint == g.Fingerprint; {
		case same && (cur.Retired || !g.Retired):
			return errNothing
		case same:
			next.Since = cur.Since
		case found && g.Number <= cur.Number:
			return errs.Newf(errs.Conflict, "", "", "the %s is of generation %d and has the sum %s; this "+
				"one is of generation %d, or another one", what, cur.Number, cur.Fingerprint, g.Number)
		default:
			next.Since = t.now.UnixNano()
		}
		t.putStored(generationKey(what), &next)
		return nil
	})
	if err == nil {
		r, err = s.Registry(ctx, c)
	}
	return r, err
}

// ListDenied implements meta.Denials.
func (s *Store) ListDenied(_ context.Context, c meta.Caller, after identity.Serial, max int) (
	page []meta.Denied, err error) {

	err = s.registryLook("meta.ListDenied", &c, func(t *txn) error {
		return t.registryPage(registryPrefix(registryDenied), deniedKey(after), max, meta.DeniedPageMax,
			func(key, value []byte) (bool, error) {
				var x meta.Denied
				err := parse(key, value, registryRecord{&x})
				if err != nil || t.over(x.NotAfter) {
					return false, err
				}
				page = append(page, x)
				return true, nil
			})
	})
	return page, err
}

// over tells whether a certificate's end is so long ago that nobody takes it, whatever his clock.
func (t *txn) over(notAfter int64) bool {
	return t.now.UnixNano() > notAfter+int64(registryKeep)
}

// sweepMax is how many records one transaction of the sweep removes.
const sweepMax = 24

// registryLoop forgets what has run out.
func (s *Store) registryLoop(ctx context.Context) {
	var next time.Time
	s.loop(ctx, nil, true, func() bool {
		if now := s.opt.Clock(); !now.Before(next) {
			next = now.Add(time.Minute)
			for more := true; more && ctx.Err() == nil; {
				var err error
				if more, err = s.sweepRegistry(ctx); err != nil {
					s.opt.Log.Warn("the registry could not be swept", "err", err)
					break
				}
			}
		}
		return false
	})
}

// sweepRegistry removes some of what has run out, and tells whether there may be more.
func (s *Store) sweepRegistry(ctx context.Context) (more bool, err error) {
	_, err = s.update(ctx, &meta.Caller{}, func(t *txn) error {
		t.kv.MakesRoom = true
		gone, err := t.ranOut()
		for _, key := range gone {
			if _, err := t.read(key); err != nil {
				return err
			}
			t.remove(key)
		}
		if more = len(gone) == sweepMax; len(gone) == 0 && err == nil {
			return errNothing
		}
		return err
	})
	return more, err
}

// ranOut lists some of what nobody needs any more: tokens whose time is over, uses of tokens that
// are gone, denials of certificates that have ended. What cannot be read is left to the check.
func (t *txn) ranOut() (gone [][]byte, err error) {
	for _, sort := range []byte{registryToken, registryUse, registryDenied} {
		err := t.scan(registryPrefix(sort), func(key, value []byte) bool {
			if t.isOver(key, value) {
				gone = append(gone, append([]byte(nil), key...))
			}
			return len(gone) < sweepMax
		})
		if err != nil || len(gone) == sweepMax {
			return gone, err
		}
	}
	return gone, nil
}

func (t *txn) isOver(key, value []byte) bool {
	switch key[1] {
	case registryToken:
		var x meta.Token
		return parse(key, value, registryRecord{&x}) == nil && t.over(x.Expires)
	case registryUse:
		if len(key) != registryUseKeyBytes {
			return false
		}
		token, err := t.peek(tokenKey(number(key[1:], 0)))
		return err == nil && token == nil
	case registryDenied:
		var x meta.Denied
		return parse(key, value, registryRecord{&x}) == nil && t.over(x.NotAfter)
	}
	return false
}
