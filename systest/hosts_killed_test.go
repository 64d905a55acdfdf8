package systest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/systest/hosttest"
)

// killProcess ends a process of a host, which is started again by the one that supervises it. It
// tells whether there was one.
func (b *bed) killProcess(h *hosttest.Host, name string) bool {
	out, _ := b.sluice(h, "status", "--json", "--dir", b.folder(h))
	var st struct {
		Processes []struct {
			Name string `json:"name"`
			PID  int    `json:"pid"`
		} `json:"processes"`
	}
	_ = json.Unmarshal([]byte(out), &st) // while it is down there is no report, or an empty one
	for _, p := range st.Processes {
		if p.Name == name && p.PID > 0 {
			return syscall.Kill(p.PID, syscall.SIGKILL) == nil
		}
	}
	return false
}

// seeded is a generator whose seed is told.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(envInt("SLUICE_SEED", int(time.Now().UnixNano()&0xffffffff)))
	t.Logf("seed %d (SLUICE_SEED)", seed)
	return rand.New(rand.NewPCG(seed, 2))
}

// beside is something that is done again and again, at random moments, until end is called.
type beside struct {
	done atomic.Int64 // how often
	over chan struct{}
	wg   sync.WaitGroup
}

func startBeside(rng *rand.Rand, pause time.Duration, do func() bool) *beside {
	b := &beside{over: make(chan struct{})}
	b.wg.Go(func() {
		for {
			select {
			case <-b.over:
				return
			case <-time.After(time.Duration(rng.Int64N(int64(pause)))):
				if do() {
					b.done.Add(1)
				}
			}
		}
	})
	return b
}

func (b *beside) end() int64 {
	close(b.over)
	b.wg.Wait()
	return b.done.Load()
}

// repeat runs a command until it ends well.
func (b *bed) repeat(h *hosttest.Host, args ...string) (failures int) {
	b.t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; failures++ {
		out, err := b.sluice(h, args...)
		if err == nil {
			return failures
		}
		if time.Now().After(end) {
			b.t.Fatalf("%v on %s: %s %v", args, h.Name, out, err)
		}
	}
}

// TestServiceKilledWhileOthersJoin: the metadata service is killed again and again while a host and
// a client join. Who repeats the command becomes a member, once, by one use of its token.
func TestServiceKilledWhileOthersJoin(t *testing.T) {
	t.Parallel()
	rng := seeded(t)
	b := newBed(t)
	b.firstHost()
	h1, h2, c1 := b.host("h1"), b.host("h2"), b.host("c1")
	b.typed(h1, "sluice token create --host --dir /var/lib/sluice")
	host := b.token
	// Those who share a token use it once each.
	const uses = 40
	b.typed(h1, "sluice token create --client lab --squash none --uses 40 --dir /var/lib/sluice")
	client := b.token
	kills := startBeside(rng, 200*time.Millisecond, func() bool { return b.killProcess(h1, "meta") })
	failed, joined := b.repeat(h2, "join", h1.Addr+":9401", host, "--dir", b.folder(h2)), 0
	for ; joined < uses/2 && (joined < 2 || kills.done.Load() < 4); joined++ {
		failed += b.repeat(c1, "join", h1.Addr+":9401", client, "--credential",
			c1.Path(fmt.Sprintf("lab%d.json", joined)))
	}
	t.Logf("%d kills, %d clients joined, %d commands failed", kills.end(), joined, failed)
	b.serve(h2)
	b.awaitServers(2)
	_, err := b.sluice(c1, "ls", "--credential", c1.Path("lab0.json"), "/")
	must(t, err)
	out, err := b.sluice(h1, "host", "ls", "--json", "--dir", b.folder(h1))
	must(t, err)
	if n := strings.Count(out, `"name"`); n != 2 {
		t.Errorf("%d hosts: %s", n, out)
	}
	b.refused(c1, "used up", "join", h1.Addr+":9401", host, "--dir", c1.Path("x"))
	out, err = b.sluice(h1, "token", "ls", "--json", "--dir", b.folder(h1))
	must(t, err)
	if used := fmt.Sprintf(`"used": %d,`, joined); !strings.Contains(out, used) {
		t.Errorf("%d clients have joined: %s", joined, out)
	}
	// A client that is killed while it joins, any number of times, uses its token once, too.
	b.typed(h1, "sluice token create --client c9 --dir /var/lib/sluice")
	b.until(rng, c1, "join", h1.Addr+":9401", b.token, "--credential", c1.Path("c9.json"))
	b.refused(c1, "used up", "join", h1.Addr+":9401", b.token, "--credential", c1.Path("x.json"))
	_, err = b.sluice(c1, "ls", "--credential", c1.Path("c9.json"), "/")
	must(t, err)
}

// TestRotationKilled: a client writes while both keys of the cluster are changed; meanwhile the
// command itself, the metadata service and I/O servers are killed. The command is repeated, ends
// well, the new keys are used everywhere, and nothing is lost.
func TestRotationKilled(t *testing.T) {
	t.Parallel()
	rng := seeded(t)
	own := rand.New(rand.NewPCG(rng.Uint64(), 3)) // of this goroutine
	b := newBed(t)
	b.setUp()
	h1, h2 := b.host("h1"), b.host("h2")
	l := b.startWriter(b.host("c1"), "load")
	l.progress(2)
	var first keysNow
	b.awaitKeys("all servers know the first secret", readyLimit, func(k *keysNow) bool {
		first = *k
		return k.known(k.Signs, 3)
	})
	kills := startBeside(rng, time.Second, func() bool {
		switch rng.IntN(3) {
		case 0:
			return b.killProcess(h1, "meta")
		case 1:
			return b.killProcess(h1, "iod1")
		}
		return b.killProcess(h2, "iod2")
	})
	b.until(own, h1, "key", "rotate", "authority", "--dir", b.folder(h1))
	rounds := uint64(0)
	for ; rounds < 2 || kills.done.Load() < 4; rounds++ {
		b.until(own, h1, "key", "rotate", "secret", "--dir", b.folder(h1))
		want := first.Signs + rounds + 1
		b.awaitKeys("the new secret signs", 2*time.Minute, func(k *keysNow) bool {
			return k.known(want, 3) && k.Signs == want
		})
		b.until(own, h1, "key", "rotate", "secret", "--retire", "--dir", b.folder(h1))
		l.progress(1)
	}
	t.Logf("%d processes were killed, %d secrets made", kills.end(), rounds)
	b.awaitKeys("the ones before have ended", readyLimit, func(k *keysNow) bool {
		return k.Secret.Valid == 1 && k.Secret.Generation == first.Secret.Generation+rounds
	})
	l.progress(2)
	l.end()
	b.typed(h1, "sluice token create --client c7 --dir /var/lib/sluice") // by the new authority
	c1 := b.host("c1")
	_, err := b.sluice(c1, "join", h1.Addr+":9401", b.token, "--credential", c1.Path("c7.json"))
	must(t, err)
	_, err = b.sluice(c1, "ls", "--credential", c1.Path("c7.json"), "/")
	must(t, err)
}
