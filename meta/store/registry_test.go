package store_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
	"github.com/sluice-storage/sluice/meta/store"
)

// enlist fills the registry with one of everything.
func (p *patient) enlist() {
	p.t.Helper()
	end := time.Now().Add(time.Hour).UnixNano()
	_, err := p.store.CreateToken(p.t.Context(), meta.Caller{}, meta.Token{ID: 7,
		Hash: identity.Hash{1}, Kind: identity.Client, Uses: 3, Expires: end,
		Rights: identity.Rights{Path: "/"}})
	p.must(err)
	for i, name := range []string{"ann", "bob"} {
		_, err = p.store.UseToken(p.t.Context(), meta.Caller{}, meta.TokenUse{ID: 7,
			Hash: identity.Hash{1}, Name: name, Key: identity.Hash{byte(1 + i)},
			Certificate: meta.Certificate{Serial: identity.Serial{byte(1 + i)}, NotAfter: end}})
		p.must(err)
	}
	p.must(p.store.RemoveMember(p.t.Context(), meta.Caller{}, identity.Client, "bob"))
	_, err = p.store.SetGeneration(p.t.Context(), meta.Caller{}, identity.SigningKey,
		meta.Generation{Number: 1, Fingerprint: identity.Hash{9}})
	p.must(err)
}

// TestRegistryIsDumpedAndRestored with all that it has.
func TestRegistryIsDumpedAndRestored(t *testing.T) {
	p := newPatient(t)
	p.enlist()
	b := p.backup(3, func() {})
	snap := p.engine.Snapshot()
	defer snap.Close()
	want := everything(t, snap)
	kinds := map[byte]bool{}
	for k := range want {
		if k[0] == 'H' {
			kinds[k[1]] = true
		}
	}
	if len(kinds) != 5 {
		t.Fatalf("%v: a token, its uses, a client, a denial and a generation are expected", kinds)
	}
	for name, open := range targets(t) {
		t.Run(name, func(t *testing.T) { restore(t, open(), b, want) })
	}
}

// TestRegistryIsChecked: records that cannot be read, that are another's, or that a newer build
// wrote are found, by the check and by Verify; a repair of a damaged store leaves the others.
func TestRegistryIsChecked(t *testing.T) {
	p := newPatient(t)
	p.enlist()
	if found := p.check(false); len(found) != 0 {
		t.Fatalf("%+v", found)
	}
	verify(t, p.store)
	ann := key('H', "cann")
	for name, put := range map[string]kv.Put{
		"cut":       {Key: ann, Value: p.get(ann)[:9]},
		"another's": {Key: key('H', "ceve"), Value: p.get(ann)},
		"newer":     p.edit(ann, 0, 99),
		"unknown":   {Key: key('H', "?x"), Value: []byte{1}},
		"short":     {Key: key('H'), Value: []byte{1}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPatient(t)
			p.enlist()
			p.damage(kv.Txn{Puts: []kv.Put{put}})
			found := p.check(true)
			if len(found) != 1 || found[0].Kind != meta.Unreadable || found[0].Ino != 0 ||
				found[0].State != meta.Left {
				t.Fatalf("%+v", found)
			}
			problems := 0
			p.must(p.store.Verify(t.Context(), func(string) { problems++ }))
			if problems != 1 {
				t.Fatalf("%d problems", problems)
			}
			p.must(store.Repair(t.Context(), p.engine, func(string) {}))
			if found := p.check(false); len(found) != 0 {
				t.Fatalf("after a repair: %+v", found)
			}
			if r, err := p.store.Registry(t.Context(), meta.Caller{}); err != nil ||
				r.Authority.Number != 1 || r.Denials != 2 {
				t.Fatalf("%+v, %v", r, err)
			}
		})
	}
}

// TestRegistryIsSwept: what has run out goes, also what was noted of uses; members stay.
func TestRegistryIsSwept(t *testing.T) {
	var ahead atomic.Int64
	engine := memkv.New(memkv.Options{})
	s, err := store.New(t.Context(), engine, store.Options{Objects: metatest.NewObjects(),
		Tick:  2 * time.Millisecond,
		Clock: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	defer s.Stop()
	p := &patient{world: &world{t: t, engine: engine, store: s}}
	p.enlist()
	left := func() map[byte]int {
		snap := engine.Snapshot()
		defer snap.Close()
		n := map[byte]int{}
		for k := range everything(t, snap) {
			if k[0] == 'H' {
				n[k[1]]++
			}
		}
		return n
	}
	if n := left(); n['t'] != 1 || n['u'] != 2 || n['d'] != 1 || n['c'] != 1 {
		t.Fatalf("%v", n)
	}
	p.must(s.RemoveToken(t.Context(), meta.Caller{}, 7))
	ahead.Store(int64(2 * time.Minute))
	await := func(what string, ok func(n map[byte]int) bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !ok(left()); time.Sleep(2 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %v", what, left())
			}
		}
	}
	await("uses of a token that is gone", func(n map[byte]int) bool { return n['u'] == 0 })
	if n := left(); n['d'] != 1 || n['c'] != 1 {
		t.Fatalf("%v", n)
	}
	ahead.Store(int64(30 * time.Hour))
	await("denials that have run out", func(n map[byte]int) bool { return n['d'] == 0 && n['c'] == 1 })
}
