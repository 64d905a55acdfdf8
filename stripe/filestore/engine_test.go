package filestore

import (
	"testing"

	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/stripetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	runVictim() // does not return in a child of TestKill
	goleak.VerifyTestMain(m)
}

func mustOpen(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func engine(openFiles int) stripetest.Config {
	const thin = "the thin store keeps no sessions, no epochs and no statistics"
	return stripetest.Config{
		Exclude: map[string]string{
			"a repeated request is recognised":                    thin,
			"a repeated request is recognised after a restart":    thin,
			"every kind of request is recognised after a restart": thin,
			"the epoch of the last change is kept":                thin,
			"statistics count":                                    thin,
		},
		Open: func(t testing.TB) stripe.Engine {
			return mustOpen(t, Options{Dir: t.TempDir(), OpenFiles: openFiles, ServerID: 3})
		},
		Reopen: func(t testing.TB, e stripe.Engine) stripe.Engine {
			t.Helper()
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			return mustOpen(t, Options{Dir: e.(*Store).opt.Dir, OpenFiles: openFiles})
		},
	}
}

func TestEngine(t *testing.T) { stripetest.Run(t, engine(0)) }

// With room for two files every request pushes out another object.
func TestEngineWithFewFiles(t *testing.T) { stripetest.Run(t, engine(2)) }
