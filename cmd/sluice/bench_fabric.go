package main

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/tcp"
	rdma "github.com/sluice-storage/sluice/fabric/verbs" // the tests have verbs of their own
)

// The providers that bench fabric knows.
const (
	plainProvider  = "tcp"
	tlsProvider    = "tcp+tls"
	framesProvider = "tcp+frames"
	verbsProvider  = "verbs"
)

func fabricProviders() []string {
	return []string{plainProvider, tlsProvider, framesProvider, verbsProvider}
}

// benchFabric measures every provider between this process and another one.
func benchFabric(ctx context.Context, b bench.Budget, flags *benchFlags) (rows []bench.Row,
	err error) {
	names, err := chooseProviders(flags.providers, b.Note)
	if err != nil {
		return nil, err
	}
	ca, err := newBenchCA()
	if err != nil {
		return nil, err
	}
	p, err := startFabricPeer(ctx, names, ca)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	f := &bench.Fabric{Plain: p.info.Plain, CPU: p.info.CPU, Quick: flags.quick}
	defer func() { err = errors.Join(err, f.Close()) }()
	creds, err := ca.issue("bench")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		domain, err := openProvider(name, creds)
		if err != nil {
			return nil, err
		}
		defer domain.Close()
		if name == verbsProvider {
			f.Perftest = findPerftest(domain, b.Note)
		}
		f.Providers = append(f.Providers, bench.Provider{Name: name, RDMA: name == verbsProvider,
			Domain: domain, Addr: p.info.Fabric[name]})
	}
	cases, err := f.Cases()
	if err != nil {
		return nil, err
	}
	return bench.RunAll(ctx, b, cases)
}

// chooseProviders are those that were asked for, or all that work here.
func chooseProviders(asked []string, note func(string)) ([]string, error) {
	for _, name := range asked {
		if !slices.Contains(fabricProviders(), name) {
			return nil, refuse("there is no provider "+name,
				"Choose from: "+strings.Join(fabricProviders(), ","))
		}
	}
	names := asked
	if len(names) == 0 {
		names = fabricProviders()
	}
	if why := verbsMissing(); why != "" && slices.Contains(names, verbsProvider) {
		if len(asked) > 0 {
			return nil, errs.Newf(errs.Unsupported, "bench fabric", verbsProvider, "%s", why)
		}
		note("verbs is left out: " + why)
		names = slices.DeleteFunc(slices.Clone(names), func(n string) bool {
			return n == verbsProvider
		})
	}
	return names, nil
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

// openProvider opens a domain for one side of bench fabric.
func openProvider(name string, c *benchCreds) (fabric.Domain, error) {
	switch name {
	case verbsProvider:
		return rdma.Open(rdma.Options{})
	case tlsProvider:
		return tcp.Open(tcp.Options{Security: c.security(false)})
	case framesProvider:
		return tcp.Open(tcp.Options{Security: c.security(true)})
	}
	return tcp.Open(tcp.Options{})
}

// findPerftest tells how to run the ceilings of RDMA, or why they are left out.
func findPerftest(d fabric.Domain, note func(string)) *bench.Perftest {
	dev, err := fabric.UpDevice(d.Connector())
	if err == nil {
		err = bench.PerftestMissing()
	}
	if err != nil {
		note("the ceilings of verbs are left out: " + err.Error())
		return nil
	}
	return &bench.Perftest{Device: dev.Name, Port: dev.Port}
}

// listenProvider listens where the other process can reach it: on loopback, or at a device.
func listenProvider(name string, d fabric.Domain) (fabric.Listener, error) {
	host := "127.0.0.1"
	if name == verbsProvider {
		dev, err := fabric.UpDevice(d.Connector())
		if err != nil {
			return nil, err
		}
		host = dev.Addrs[0]
	}
	return d.Connector().Listen(net.JoinHostPort(host, "0"))
}
