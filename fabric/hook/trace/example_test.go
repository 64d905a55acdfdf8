package trace_test

import (
	"os"
	"time"

	"github.com/sluice-storage/sluice/fabric/hook/trace"
	"github.com/sluice-storage/sluice/fabric/sim"
)

// The last thousand events of a domain, as text. (The clock stands still to make them the same each
// time.)
func Example() {
	d, err := trace.New(sim.New(sim.Options{}).Open(), trace.Options{
		Events: 1000,
		Clock:  func() time.Duration { return 1500 * time.Microsecond },
	})
	if err != nil {
		panic(err)
	}
	defer d.Close()
	if _, err := d.Register(make([]byte, 4096)); err != nil {
		panic(err)
	}
	if err := d.Dump(os.Stdout); err != nil {
		panic(err)
	}
	// Output: 0.001500000 register                4096 B
}
