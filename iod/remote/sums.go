package remote

import "github.com/sluice-storage/sluice/iod"

// What sums on the wire are for: between the memory of a client and that of a server there are
// devices, drivers, links and other hosts, any of which may change a bit, and the checks of each
// of them end where it hands the data on. On one host there is nothing of that between the two:
// the data is copied once, by a processor, from one memory to another that it has just been summed
// in, or is about to be. (What arrives is summed by the server in any case, for its store; what it
// reads from its disks it verifies.) A check of that copy would find errors of the host's memory,
// and those only that happen between it and the next one, for a tenth of what moving the data
// costs.
//
// So data that stays on the host is not summed on its way, unless Options.SumNear asks for it. A
// request is sent as it was made when its connection is lost and the next one goes by the network,
// which is seldom and has its own checks.

// spareSums has a request go without sums where its server is on this host.
func (r *Remote) spareSums(t *iod.Target) {
	if r.opts.SumNear || t.How.NoSums {
		return
	}
	conn := r.server(t.Server).conn.Load()
	t.How.NoSums = conn != nil && conn.SameHost()
}
