// Package fabrictest is the definition of what a fabric provider must do: a suite of named cases
// that every provider runs from its own tests. A provider that cannot do a case lists its name
// in Config.Exclude with the reason, and the reason is printed.
//
// Beside Run, which has both sides in one process, there are Serve and Visit for two processes or
// hosts, SteadyAllocs, which fails when operations allocate, and Bench. Where the contract leaves a
// provider the choice (Caps.AnyMemory, RefusalEnds) the cases hold what is promised
// then.
//
// It does not test speed limits (Bench only measures) nor what one provider alone has, such as the
// frames of tcp.
//
// Read this file first (the table of cases), then rig.go (two connected sides), then the case_*.go;
// flaw_test.go shows that the suite notices what it is there for.
package fabrictest

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-storage/sluice/fabric"
)

// Config tells the suite how to get at a provider.
type Config struct {
	// Open makes a domain that the suite closes. All domains that one Config opens reach each
	// other. The function beside it gives an address to listen on, a fresh one at each call.
	Open func(t testing.TB) (fabric.Domain, func() string)

	// OpenTokens is Open for a domain whose listeners ask for a token of these. nil: the provider
	// knows no tokens, and the cases about them are left out.
	OpenTokens func(t testing.TB, tokens *fabric.Tokens) (fabric.Domain, func() string)

	// Patience bounds every wait of the suite. Default a minute.
	Patience time.Duration

	// Endless makes the suite wait with a context that never ends, as a goroutine does that only
	// waits. Providers may take another path then. A wait that fails hangs until the test's own
	// timeout.
	Endless bool

	// Exclude names cases that the provider cannot do, with the reason.
	Exclude map[string]string
}

func (c Config) withDefaults() Config {
	if c.Patience == 0 {
		c.Patience = time.Minute
	}
	return c
}

// limit is a context that ends with the suite's patience.
func (c Config) limit() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), c.Patience)
}

// testCase is one named promise of the contract.
type testCase struct {
	name string
	run  func(t *testing.T, cfg Config)
}

func allCases() []testCase {
	var all []testCase
	for _, list := range [][]testCase{
		deviceCases(), connectCases(), tokenCases(), messageCases(), writeCases(), readCases(),
		orderCases(), queueCases(), solicitedCases(), grantCases(), loadCases(),
		deathCases(), endCases(), misuseCases(), modelCases(),
	} {
		all = append(all, list...)
	}
	return all
}

// Run runs every case that is not excluded and then looks for goroutines left behind.
func Run(t *testing.T, cfg Config) {
	cfg = cfg.withDefaults()
	before := goleak.IgnoreCurrent()
	known := map[string]bool{}
	for _, c := range allCases() {
		known[c.name] = true
		t.Run(c.name, func(t *testing.T) {
			if why, ok := cfg.Exclude[c.name]; ok {
				t.Skipf("excluded: %s", why)
			}
			c.run(t, cfg)
		})
	}
	for name := range cfg.Exclude {
		if !known[name] {
			t.Errorf("excluded case %q does not exist", name)
		}
	}
	if err := goleak.Find(before); err != nil {
		t.Errorf("goroutines left behind: %v", err)
	}
}
