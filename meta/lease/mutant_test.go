package lease

import (
	"testing"

	"github.com/sluice-storage/sluice/internal/mutanttest"
)

// Each mutant of testdata/mutants.txt must be found by the model.
func TestMutantsAreFound(t *testing.T) {
	var hunt mutanttest.Hunt
	for _, name := range []string{"lendMarked", "lendTwice", "extendAlways", "anyAnswer", "keepEpoch",
		"expireEarly"} {
		hunt.Cases = append(hunt.Cases, mutanttest.Case{Mutant: name,
			Tests: "TestNobodyBelievesTooMuch"})
	}
	hunt.Run(t)
}
