package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/meta/store"
)

// sessionFlag is how long a client may be silent, and how many files clients may have open.
type sessionFlag struct {
	time  time.Duration
	lease time.Duration // how long clients rely on what they know
	files int           // of one client
	all   int           // of all together
}

const (
	sessionDefault = 30 * time.Second
	leaseDefault   = 5 * time.Second
	filesDefault   = 1 << 20
	allDefault     = 1 << 22
)

func (f *sessionFlag) add(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.time, "session-time", sessionDefault,
		"how long a client may be silent before its files are closed; its rights on data last up to "+
			"twice as long, at most "+capability.TTLMax.String())
	cmd.Flags().DurationVar(&f.lease, "lease-time", leaseDefault,
		"how long others wait for a client that keeps names and attributes and does not answer; at "+
			"most half of --session-time")
	cmd.Flags().IntVar(&f.files, "open-files", filesDefault,
		"how many files one client (a mount, a gateway) may have open")
	cmd.Flags().IntVar(&f.all, "open-files-all", allDefault,
		"how many files all clients together may have open")
}

func (f *sessionFlag) check() error {
	if f.time < time.Second || f.time > time.Hour {
		return refuse(fmt.Sprintf("--session-time %v", f.time), "Choose from 1s to 1h")
	}
	if f.lease < 10*time.Millisecond {
		return refuse(fmt.Sprintf("--lease-time %v", f.lease), "Choose 10ms or more")
	}
	if f.files < 1 || f.all < 1 {
		return refuse(fmt.Sprintf("--open-files %d, --open-files-all %d", f.files, f.all),
			"Choose numbers above 0")
	}
	return nil
}

// args are the flags for another process; none for defaults.
func (f *sessionFlag) args() (args []string) {
	if f.time != sessionDefault {
		args = append(args, "--session-time", f.time.String())
	}
	if f.lease != leaseDefault {
		args = append(args, "--lease-time", f.lease.String())
	}
	if f.files != filesDefault {
		args = append(args, "--open-files", fmt.Sprint(f.files))
	}
	if f.all != allDefault {
		args = append(args, "--open-files-all", fmt.Sprint(f.all))
	}
	return args
}

// apply sets what depends on it. A client renews rights that it uses after a third of their life.
func (f *sessionFlag) apply(o *store.Options) {
	o.Lease, o.CapTTL = f.time, min(2*f.time, capability.TTLMax)
	o.LeaseTime = min(f.lease, f.time/2)
	o.HandlesMax, o.HandlesAllMax = f.files, f.all
	o.Tick = min(time.Second, f.time/10)
}
