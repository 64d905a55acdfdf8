package meter_test

import (
	"fmt"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/hook/meter"
	"github.com/sluice-storage/sluice/fabric/sim"
)

// Whatever is done with the domain is counted.
func Example() {
	d := meter.New(sim.New(sim.Options{}).Open())
	defer d.Close()
	if _, err := d.Register(make([]byte, 4096)); err != nil {
		panic(err)
	}
	s := d.Snapshot()
	fmt.Println(s.Links.RegionBytes, "bytes registered,", s.Op(fabric.OpWrite).Posted, "writes")
	// Output: 4096 bytes registered, 0 writes
}
