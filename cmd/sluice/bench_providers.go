package main

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/sluice-storage/sluice/bench/partner"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/shm"
	"github.com/sluice-storage/sluice/fabric/tcp"
	rdma "github.com/sluice-storage/sluice/fabric/verbs" // the tests have verbs of their own
)

// The providers that benches know.
const (
	plainProvider  = "tcp"
	tlsProvider    = "tcp+tls"
	framesProvider = "tcp+frames"
	shmProvider    = "shm"
	verbsProvider  = "verbs"
)

// chooseProviders are those that were asked for, or all that a bench knows and that work here.
func (f *benchFlags) chooseProviders(asked, known []string) ([]string, error) {
	for _, name := range asked {
		if !slices.Contains(known, name) {
			return nil, refuse(f.name()+" has no provider "+name,
				"Choose from: "+strings.Join(known, ","))
		}
	}
	names := asked
	if len(names) == 0 {
		names = known
	}
	if !slices.Contains(names, verbsProvider) {
		return names, nil
	}
	why := verbsMissing()
	switch {
	case why == "":
		return names, nil
	case len(asked) > 0:
		return nil, errs.Newf(errs.Unsupported, f.name(), verbsProvider, "%s", why)
	}
	f.note("verbs is left out: " + why)
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		return n == verbsProvider
	}), nil
}

// verbsMissing tells why there is no RDMA here; "" if there is.
func verbsMissing() string {
	if ok, why := rdma.Available(); !ok {
		return why
	}
	d, err := rdma.Open(rdma.Options{})
	if err != nil {
		return err.Error()
	}
	_ = d.Close() // it was only a question
	return ""
}

// rdmaPlace is an address at the first device that is up.
func rdmaPlace(d fabric.Domain) (string, error) {
	dev, err := fabric.UpDevice(d.Connector())
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(dev.Addrs[0], "0"), nil
}

// benchOpener opens providers for one side of a bench, each time anew. Without certificates there
// is no tcp+tls and no tcp+frames.
func benchOpener(creds *benchCreds) partner.Opener {
	var names atomic.Uint64 // of places in shared memory
	return func(provider string) (partner.Domain, error) {
		d := partner.Domain{Listen: net.JoinHostPort("127.0.0.1", "0")}
		var err error
		switch provider {
		case plainProvider:
			d.Domain, err = tcp.Open(tcp.Options{})
		case tlsProvider, framesProvider:
			security := creds.security(provider == framesProvider)
			d.Domain, err = tcp.Open(tcp.Options{Security: security})
		case shmProvider:
			arenas := shm.NewArenas()
			d.Source = arenas
			d.Listen = fmt.Sprintf("unix:@sluice-bench-%d-%d", os.Getpid(), names.Add(1))
			d.Domain, err = shm.Open(shm.Options{Arenas: arenas})
		case verbsProvider:
			d.Domain, err = rdma.Open(rdma.Options{})
			if err == nil {
				d.Listen, err = rdmaPlace(d.Domain)
			}
		default:
			err = errs.Newf(errs.Invalid, "bench", provider, "no such provider")
		}
		return d, err
	}
}
