package systest

import (
	"encoding/json"
	"testing"
	"time"
)

// keysNow is what `sluice key ls --json` tells.
type keysNow struct {
	Secret struct {
		Generation uint64 `json:"generation"`
		Valid      int    `json:"valid"`
	} `json:"secret"`
	Signs   uint64 `json:"signs"`
	Servers []struct {
		ID     uint32 `json:"id"`
		Host   string `json:"host"`
		Secret uint64 `json:"secret"`
	} `json:"servers"`
}

// known tells whether so many servers know a secret.
func (k *keysNow) known(secret uint64, servers int) bool {
	n := 0
	for _, s := range k.Servers {
		if s.Secret == secret {
			n++
		}
	}
	return secret > 0 && n == servers
}

// awaitKeys waits until the keys of the cluster are as they should be, and tells how long it took.
func (b *bed) awaitKeys(what string, limit time.Duration, ok func(k *keysNow) bool) {
	b.t.Helper()
	h1 := b.host("h1")
	began := time.Now()
	for {
		out, err := b.sluice(h1, "key", "ls", "--json", "--dir", b.folder(h1))
		var k keysNow
		if err == nil { // a service that was killed is away for a moment
			err = json.Unmarshal([]byte(out), &k)
		}
		took := time.Since(began)
		if err == nil && ok(&k) {
			b.t.Logf("%s after %.1f s", what, took.Seconds())
			return
		}
		if took > limit {
			b.t.Fatalf("not within %v: %s: %s %v", limit, what, out, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// TestHostsRotate: a client writes while the cluster's secret changes, to the end: servers of all
// hosts hear of the new one, it is signed with, and the one before ends by itself.
func TestHostsRotate(t *testing.T) {
	b := newBed(t)
	b.setUp()
	h1 := b.host("h1")
	l := b.startWriter(b.host("c1"), "load")
	l.progress(3)
	var first uint64
	b.awaitKeys("all servers know the first secret", readyLimit, func(k *keysNow) bool {
		first = k.Signs
		hosts := map[string]bool{}
		for _, s := range k.Servers {
			hosts[s.Host] = s.Secret == first
		}
		return first > 0 && hosts["h1"] && hosts["h2"] && hosts["h3"]
	})
	b.typed(h1, "sluice key rotate secret --dir /var/lib/sluice")
	b.awaitKeys("the new secret signs", time.Minute, func(k *keysNow) bool {
		return k.Signs == first+1 && k.Secret.Valid == 2
	})
	l.progress(3)
	b.refused(h1, "valid already", "key", "rotate", "secret", "--dir", b.folder(h1))
	b.awaitKeys("the one before has ended", 2*time.Minute+busyMax, func(k *keysNow) bool {
		all := k.Secret.Valid == 1
		for _, s := range k.Servers {
			all = all && s.Secret == first+1
		}
		return all
	})
	l.progress(3)
	l.end()
}
