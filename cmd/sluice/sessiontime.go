package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/meta/store"
)

// sessionFlag is how long a client may be silent.
type sessionFlag struct{ time time.Duration }

const sessionDefault = 30 * time.Second

func (f *sessionFlag) add(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.time, "session-time", sessionDefault,
		"how long a client may be silent before its files are closed; its rights on data last up to "+
			"twice as long, at most "+capability.TTLMax.String())
}

func (f *sessionFlag) check() error {
	if f.time < time.Second || f.time > time.Hour {
		return refuse(fmt.Sprintf("--session-time %v", f.time), "Choose from 1s to 1h")
	}
	return nil
}

// args is the flag for another process; nil for the default.
func (f *sessionFlag) args() []string {
	if f.time == sessionDefault {
		return nil
	}
	return []string{"--session-time", f.time.String()}
}

// apply sets what depends on it. A client renews rights that it uses after a third of their life.
func (f *sessionFlag) apply(o *store.Options) {
	o.Lease, o.CapTTL = f.time, min(2*f.time, capability.TTLMax)
	o.Tick = min(time.Second, f.time/10)
}
