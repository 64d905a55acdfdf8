package iodtest

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/iod/remote"
	"github.com/sluice-storage/sluice/iod/server"
	"github.com/sluice-storage/sluice/unifier"
)

// The crowd is worth what it finds. Each defect below is planted into a sound server or client; a
// crowd must find it within a few seeds.

// recorder is a testing.TB that keeps failures to itself.
type recorder struct {
	testing.TB

	mu       sync.Mutex
	failures []string
	cleanups []func()
}

func (r *recorder) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, text)
}

func (r *recorder) Helper()                      {}
func (r *recorder) Logf(string, ...any)          {}
func (r *recorder) Error(args ...any)            { r.note(fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, args ...any) { r.note(fmt.Sprintf(f, args...)) }
func (r *recorder) Fatal(args ...any)            { r.note(fmt.Sprint(args...)); runtime.Goexit() }
func (r *recorder) Fatalf(f string, args ...any) { r.Errorf(f, args...); runtime.Goexit() }

func (r *recorder) Cleanup(fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, fn)
}

// attempt runs a crowd once and returns what it found, nil for nothing.
func attempt(t *testing.T, ro rigOptions, co CrowdOptions) (found error) {
	r := &recorder{TB: t}
	var wg sync.WaitGroup
	wg.Go(func() { found = run(r, ro, co) })
	wg.Wait()
	for _, fn := range slices.Backward(r.cleanups) {
		wg.Go(fn) // on a goroutine of its own, since it may end by Fatal
		wg.Wait()
	}
	if found == nil && len(r.failures) > 0 {
		found = errors.New(r.failures[0])
	}
	return found
}

// planted is a defect.
type planted struct {
	name  string
	plant func(*rigOptions)
}

// clientDefects, serverDefects and cacheDefects are those that a crowd must find.
func clientDefects() []planted {
	plant := func(name string, d remote.Defects) planted {
		return planted{"remote: " + name, func(o *rigOptions) { o.remote.Defects = d }}
	}
	return []planted{
		plant("a changed verifier is not noticed", remote.Defects{IgnoreVerifier: true}),
		plant("one of seven is not sent again", remote.Defects{ForgetOne: true}),
		plant("sent again in another order", remote.Defects{OutOfOrder: true}),
		plant("sent again under other numbers", remote.Defects{NewNumbers: true}),
		plant("what comes too late is not told", remote.Defects{HideCut: true}),
	}
}

func serverDefects() []planted {
	plant := func(name string, d server.Defects) planted {
		return planted{"server: " + name, func(o *rigOptions) { o.serverDefects = d }}
	}
	return []planted{
		plant("writes are not numbered", server.Defects{Forget: true}),
		plant("direct writes leave the cache as it is", server.Defects{Stale: true}),
		plant("direct reads miss what is pending", server.Defects{Unsettled: true}),
		plant("the verifier stays", server.Defects{KeepMark: true}),
	}
}

func cacheDefects() []planted {
	plant := func(fault string) planted {
		return planted{"cache: " + fault, func(o *rigOptions) { o.cacheDefects = []string{fault} }}
	}
	return []planted{
		plant("lendUnpinned"), plant("skipSettle"), plant("keepChanged"), plant("evictDirty"),
		plant("keepSums"), plant("anyOrder"),
	}
}

// rareDefects take a crowd half a minute to find.
func rareDefects() []planted {
	return []planted{
		{"server: cached reads do not see fences", func(o *rigOptions) {
			o.serverDefects.NoFence = true
		}},
		{"cache: dropStamps", func(o *rigOptions) { o.cacheDefects = []string{"dropStamps"} }},
	}
}

func TestPlantedDefectsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while under the race detector")
	}
	all := slices.Concat(clientDefects(), serverDefects(), cacheDefects())
	if soaking() {
		all = append(all, rareDefects()...)
	}
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			const seeds = 40
			for seed := range uint64(seeds) {
				ro := rigOptions{net: simNetwork(seed, sim.Options{MaxDelay: int(seed % 2 * 8)}),
					store: memStore(t), cache: unifier.Config{MemoryBytes: 24 << 20,
						DirtyBytes: 2 << 20, DirtyAge: 30 * time.Millisecond}}
				c.plant(&ro)
				co := usualCrowd(seed)
				co.Every = 60
				err := attempt(t, ro, co)
				if errors.Is(err, ErrViolated) {
					t.Logf("seed %d: %.200v", seed, err)
					return
				}
				fatal(t, err)
			}
			t.Errorf("not found with %d seeds", seeds)
		})
	}
}
