package delay_test

import (
	"fmt"
	"time"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/hook/delay"
	"github.com/sluice-storage/sluice/fabric/sim"
)

// A network of 1 Gbit/s whose messages take a millisecond, more or less, and Reads two.
func Example() {
	d, err := delay.New(sim.New(sim.Options{}).Open(), delay.Options{
		Seed:      1,
		Delay:     delay.Span{Min: 900 * time.Microsecond, Max: 1100 * time.Microsecond},
		Ops:       map[fabric.Op]delay.Span{fabric.OpRead: {Min: 2 * time.Millisecond}},
		Bandwidth: 125 << 20,
	})
	if err != nil {
		panic(err)
	}
	defer d.Close()
	fmt.Println(d.Caps().Provider)
	// Output: sim
}
