// Package stripetest is the definition of a stripe engine: every engine passes all of it. An engine
// that cannot be opened again lists no Reopen, and the cases that need one say so.
//
// It holds no engine. Faults of an engine are stripe/hook/fault's; devices that record, stall and
// fail, for engines that stand on one, are stripe/device/devicetest's. What a power cut may do is
// tested by the engines themselves, which know their files.
//
// Read stripetest.go first; each other file holds the cases of one subject.
package stripetest

import (
	"maps"
	"os"
	"strconv"
	"testing"

	"github.com/sluice-storage/sluice/stripe"
)

// Config says how to get an engine.
type Config struct {
	// Open makes an empty engine. The case closes it.
	Open func(t testing.TB) stripe.Engine

	// Reopen closes e and opens what it held again, as a restart of the server does. nil: the
	// engine keeps nothing.
	Reopen func(t testing.TB, e stripe.Engine) stripe.Engine

	// Crash lets go of e as the death of its process does, without closing it, and opens what it held
	// again. nil: cases restart with Reopen only.
	Crash func(t testing.TB, e stripe.Engine) stripe.Engine

	// OpenSmall makes an empty engine with room for 4 to 64 MiB of data. nil: the cases about a full
	// store are left out.
	OpenSmall func(t testing.TB) stripe.Engine

	// HoleBytes is the unit in which the engine can tell holes from data. Default 64 KiB.
	HoleBytes int64

	// Exclude names cases that the engine does not pass, each with the reason.
	Exclude map[string]string

	// Seeds is how many random runs against the model there are. Default 4; the environment
	// variable STRIPETEST_SEEDS overrides it, STRIPETEST_SEED picks one seed.
	Seeds int
}

func (c Config) withDefaults(t testing.TB) Config {
	if c.Open == nil {
		t.Fatal("stripetest.Config without Open")
	}
	if c.HoleBytes == 0 {
		c.HoleBytes = 64 << 10
	}
	if c.Seeds == 0 {
		c.Seeds = 4
	}
	if v, err := strconv.Atoi(os.Getenv("STRIPETEST_SEEDS")); err == nil {
		c.Seeds = v
	}
	return c
}

// Case is one statement about an engine.
type Case struct {
	Name string
	Run  func(t testing.TB, c Config)
}

// Cases are all statements.
func Cases() []Case {
	var all []Case
	for _, subject := range [][]Case{
		readWriteCases(), truncateCases(), spaceCases(), guardCases(), raceCases(),
		repeatCases(), fullCases(), reserveCases(), sumCases(), admitCases(),
		{{"random operations agree with the model", modelCase}},
	} {
		all = append(all, subject...)
	}
	return all
}

// Run tests an engine. Cases run one after the other, each on an engine of its own.
func Run(t *testing.T, c Config) {
	c = c.withDefaults(t)
	left := maps.Clone(c.Exclude)
	for _, one := range Cases() {
		if _, excluded := c.Exclude[one.Name]; excluded {
			delete(left, one.Name)
			continue
		}
		t.Run(one.Name, func(t *testing.T) { one.Run(t, c) })
	}
	for name, reason := range left {
		t.Errorf("there is no case %q to exclude (%s)", name, reason)
	}
}
