package fault_test

import (
	"fmt"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric/hook/fault"
	"github.com/sluice-storage/sluice/fabric/sim"
)

// A domain that has no memory for the second registration, and loses the connection of its
// hundredth post.
func Example() {
	d := fault.New(sim.New(sim.Options{}).Open(), fault.Options{Rules: []fault.Rule{
		{Ops: fault.Register, Skip: 1, Count: 1, Kind: errs.NoMemory},
		{Ops: fault.Post, Skip: 99, Count: 1, Break: true},
	}})
	defer d.Close()
	for range 3 {
		_, err := d.Register(make([]byte, 4096))
		fmt.Println(errs.KindOf(err))
	}
	// Output:
	// ok
	// out of memory bound
	// ok
}
