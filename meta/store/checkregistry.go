package store

import (
	"bytes"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
)

// parseRegistry reads a record of the registry, whatever it is, and holds it against its key.
func parseRegistry(key, value []byte) error {
	var r stored
	var own func() []byte // the key that it should have
	if len(key) < 2 {
		return errs.Newf(errs.Corrupt, "meta.record", "", "key %q is none", key)
	}
	switch key[1] {
	case registryToken:
		x := &meta.Token{}
		r, own = x, func() []byte { return tokenKey(x.ID) }
	case registryUse:
		r, own = &use{}, func() []byte { return key }
	case registryHost, registryClient:
		m := &meta.Member{}
		r, own = m, func() []byte { return memberKey(m.Kind, m.Name) }
	case registryDenied:
		x := &meta.Denied{}
		r, own = x, func() []byte { return deniedKey(x.Serial) }
	case registryGeneration:
		r, own = &meta.Generation{}, func() []byte { return key }
	case registryServer:
		r, own = &reservation{}, func() []byte {
			if len(key) != registryServerBytes {
				return nil
			}
			return key
		}
	case registrySecretMin:
		r, own = &secretMin{}, secretMinKey
	default:
		return errs.Newf(errs.Version, "meta.record", "", "key %q was written by a newer build", key)
	}
	if err := parse(key, value, registryRecord{r}); err != nil {
		return err
	}
	if !bytes.Equal(own(), key) {
		return errs.Newf(errs.Corrupt, "meta.record", "", "key %q has the record of another", key)
	}
	if m, ok := r.(*meta.Member); ok {
		return checkStanding(m.Kind, m.Roles, &m.Rights)
	}
	return nil
}

// examineRegistry is a stage of the check. Nothing is known of a record that cannot be read, so
// nothing is done to it: a member that it may have been can be removed by its name, and joins
// again.
func (r *checkRun) examineRegistry(_ *txn, key, value []byte) error {
	if err := parseRegistry(key, value); err != nil {
		key = bytes.Clone(key)
		f := flaw{still: func(t *txn) (bool, error) {
			value, err := t.read(key)
			return value != nil && parseRegistry(key, value) != nil, err
		}}
		f.Kind, f.Text = meta.Unreadable, text("%v", err)
		r.add(f)
	}
	return nil
}

func (v *verifier) registry(key, value []byte) error { return parseRegistry(key, value) }

// registry keeps what can be read of tokens, members and denials. Who is forgotten joins again.
func (r *repair) registry(snap kv.Snapshot) error {
	err := r.each(snap, kindHost, func(key, value []byte) error {
		if parse(key, value, registryRecord{&meta.Host{}}) == nil {
			return nil
		}
		return r.remove(key) // it is heard of again
	})
	if err != nil {
		return err
	}
	return r.each(snap, kindRegistry, func(key, value []byte) error {
		err := parseRegistry(key, value)
		if err == nil {
			return nil
		}
		r.say("lost: a record of the registry: %v", err)
		return r.remove(key)
	})
}

// registryPrefix begins all keys of a sort.
func registryPrefix(sort byte) []byte { return []byte{kindRegistry, sort} }

func registryNumber(sort byte, n uint64) []byte {
	return append([]byte{kindRegistry}, key1(sort, n)...)
}

func tokenKey(id uint64) []byte { return registryNumber(registryToken, id) }

func useKey(token uint64, key identity.Hash) []byte {
	return append(registryNumber(registryUse, token), key[:]...)
}

func membersOf(kind identity.Kind) []byte {
	if kind == identity.Host {
		return registryPrefix(registryHost)
	}
	return registryPrefix(registryClient)
}

func memberKey(kind identity.Kind, name string) []byte { return append(membersOf(kind), name...) }

func deniedKey(s identity.Serial) []byte {
	return append(registryPrefix(registryDenied), s[:]...)
}

func generationKey(what identity.KeyKind) []byte {
	return append(registryPrefix(registryGeneration), byte(what))
}
