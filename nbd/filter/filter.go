// Package filter has exports that stand on another export and change what requests do: readonly
// refuses changes, throttle bounds bytes and operations a second, fault makes requests fail, delay
// makes them slow, log writes them down, checkwrite compares what is written with what is there.
// They are for tests of clients, for guests that must not take all of a disk, and for finding out
// what a client does.
//
// A filter keeps what the export below it can do, as far as it can see to it: extras that would
// lead past it (memory that is lent, reads that must not wait) are hidden, all others pass through
// it. Filters keep no data, and know nothing of the protocol.
//
// Read filter.go first, then around.go (how most of them are made).
package filter

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/sluice-storage/sluice/nbd"
)

// Filter is a filter with its parameters. One may wrap any number of exports, each time anew.
type Filter struct {
	text string
	wrap func(exp nbd.Export, o Options) (nbd.Export, error)
}

// Options of a wrapped export.
type Options struct {
	// Name is the export's name, for the log.
	Name string

	// Logger hears what the log filter has to say. Default: discarded.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// String is the filter as it was written.
func (f Filter) String() string { return f.text }

// Stack puts filters on an export: a request meets the first one first. It takes the export over,
// also when it fails.
func Stack(exp nbd.Export, filters []Filter, o Options) (nbd.Export, error) {
	o = o.withDefaults()
	for _, f := range slices.Backward(filters) {
		next, err := f.wrap(exp, o)
		if err != nil {
			_ = exp.Close() // the reason is what the caller needs to know
			return nil, err
		}
		exp = next
	}
	return exp, nil
}

// kinds are the filters by their names.
func kinds() map[string]func(p *params) wrapper {
	return map[string]func(p *params) wrapper{
		"readonly": newReadOnly, "throttle": newThrottle, "fault": newFault, "delay": newDelay,
		"log": newLog, "checkwrite": newCheckWrite,
	}
}

type wrapper = func(exp nbd.Export, o Options) (nbd.Export, error)

// Names are the names of all filters.
func Names() []string {
	return []string{"readonly", "throttle", "fault", "delay", "log", "checkwrite"}
}

// Parse reads NAME[:KEY=VALUE]..., where two colons in a row are one that belongs to a value.
func Parse(text string) (Filter, error) {
	name, rest, _ := strings.Cut(text, ":")
	make, ok := kinds()[name]
	if !ok {
		return Filter{}, fmt.Errorf("there is no filter %q: choose of %s", name,
			strings.Join(Names(), ", "))
	}
	p, err := parseParams(rest)
	if err != nil {
		return Filter{}, fmt.Errorf("filter %s: %w", name, err)
	}
	wrap := make(p)
	if err := p.finish(); err != nil {
		return Filter{}, fmt.Errorf("filter %s: %w", name, err)
	}
	return Filter{text: text, wrap: wrap}, nil
}
