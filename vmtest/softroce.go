package vmtest

import (
	"context"
	"fmt"

	"github.com/sluice-storage/sluice/errs"
)

// SoftRoCE gives the guest an RDMA device, the kernel's software one, on its end of a wire, with
// what user programs need to open it. It returns the device's name: rxe0 on eth0, and so on. The
// device can also talk to itself, so that one guest is enough for most of what verbs do.
func (g *Guest) SoftRoCE(ctx context.Context, w *Wire) (device string, err error) {
	p := g.port(w)
	device = "rxe" + p.device[len("eth"):]
	res, err := g.Run(ctx, fmt.Sprintf(
		"set -e; modprobe -a rdma_rxe rdma_ucm ib_uverbs; rdma link add %s type rxe netdev %s",
		device, p.device))
	if err == nil {
		err = res.Err()
	}
	return device, errs.Wrap("vmtest.SoftRoCE", g.name, err)
}
