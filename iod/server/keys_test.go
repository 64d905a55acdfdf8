package server_test

import (
	"bytes"
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
)

// generations are keys of a cluster.
func generations(gens ...uint32) (r capability.Ring) {
	for _, g := range gens {
		r = append(r, capability.Numbered{Gen: g, Key: capability.Key{byte(g), 42}})
	}
	return r
}

// TestKeysRotateUnderLoad: keys come and go while clients work, and nobody notices.
func TestKeysRotateUnderLoad(t *testing.T) {
	cluster := capability.NewKeyring(generations(2))
	own := capability.NewKeyring(generations(2).For(1))
	g := newRig(t, func(s *setup) { s.cfg.Key = own })
	signs := capability.NewSigners(cluster)
	var lives sync.RWMutex // of capabilities: no key ends while one that it has signed is in use
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for file := uint64(1); file <= 3; file++ {
		wg.Go(func() {
			data := bytes.Repeat([]byte{byte(file)}, 8<<10)
			for {
				select {
				case <-stop:
					return
				default:
				}
				lives.RLock()
				c := capability.Capability{File: file, Gen: 1, Rights: capability.Read | capability.Write,
					Session: 9, Server: 1, Layout: 3, Expiry: g.now().Add(capability.TTLMax)}
				tg := g.sign(c)
				tg.Cap = signs.Sign(&c)
				write(t, g.remote, tg, 0, data)
				if got := read(t, g.remote, tg, 0, int64(len(data))); !bytes.Equal(got, data) {
					t.Errorf("file %d has other bytes", file)
				}
				lives.RUnlock()
			}
		})
	}
	for gen := uint32(2); gen < 40 && !t.Failed(); gen++ {
		own.Set(generations(gen, gen+1).For(1)) // it hears of the new one
		cluster.Set(generations(gen+1, gen))    // which signs
		lives.Lock()
		own.Set(generations(gen + 1).For(1)) // the old one is retired
		lives.Unlock()
	}
	close(stop)
	wg.Wait()
	if n := g.counts()["capabilities_refused"] + g.counts()["capabilities_forged"]; n != 0 {
		t.Errorf("%d requests were refused", n)
	}
}

// TestUnknownKeys: a capability of a key that has ended is to be renewed, one of a key that the
// server has not heard of yet is to be shown again, and both are counted apart from forged ones.
func TestUnknownKeys(t *testing.T) {
	own := &capability.Keyring{}
	g := newRig(t, func(s *setup) { s.cfg.Key = own })
	by := func(gen uint32) errs.Kind {
		c := capability.Capability{File: 1, Gen: 1, Rights: capability.Read, Session: 9, Server: 1,
			Layout: 3, Expiry: g.now().Add(capability.TTLMax)}
		tg := g.sign(c)
		tg.Cap = capability.NewSigners(capability.NewKeyring(generations(gen))).Sign(&c)
		_, err := g.ask(iod.OpStat, tg, iod.Args{}, nil, nil)
		return errs.KindOf(err)
	}
	if got := by(2); got != errs.Again {
		t.Errorf("a server without keys: %v", got)
	}
	own.Set(generations(4, 5).For(1))
	for gen, want := range map[uint32]errs.Kind{3: errs.Expired, 4: errs.OK, 5: errs.OK,
		6: errs.Again} {
		if got := by(gen); got != want {
			t.Errorf("key %d: %v, want %v", gen, got, want)
		}
	}
	own.Set(generations(5).For(1))
	if got := by(4); got != errs.Expired {
		t.Errorf("a retired key: %v", got)
	}
	own.Set(capability.Ring{{Gen: 5, Key: capability.Key{1}}})
	if got := by(5); got != errs.Forged {
		t.Errorf("another key of the number: %v", got)
	}
	n := g.counts()
	if n["capabilities_other_key"] != 4 || n["capabilities_forged"] != 1 {
		t.Errorf("%d of other keys, %d forged", n["capabilities_other_key"], n["capabilities_forged"])
	}
}
