package filter

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
)

// newLog is log[:file=PATH]: every call with its range, how long it took and what became of it, in
// the server's log or as a line of a file.
func newLog(p *params) wrapper {
	path := p.text("file")
	return func(exp nbd.Export, o Options) (nbd.Export, error) {
		tell := func(r request, took time.Duration, err error) {
			o.Logger.Info("nbd: request", "export", o.Name, "call", r.call.String(), "offset", r.off,
				"length", r.length, "fua", r.fua, "took", took, "err", err)
		}
		var end func() error
		if path != "" {
			f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				return nil, errs.Wrap("filter.log", path, err)
			}
			tell, end = lines(f, o.Name), f.Close
		}
		a := newAround(exp, func(_ context.Context, r request, next func() error) error {
			begin := time.Now()
			err := next()
			tell(r, time.Since(begin), err)
			return err
		}, false)
		a.end = end
		return a, nil
	}
}

// lines writes calls as lines of a file: time, export, call, offset, length, FUA, microseconds, ok
// or the kind of the error.
func lines(f *os.File, name string) func(request, time.Duration, error) {
	var mu sync.Mutex
	return func(r request, took time.Duration, err error) {
		result := "ok"
		if err != nil {
			result = errs.KindOf(err).String()
		}
		mu.Lock()
		defer mu.Unlock()
		// A log that cannot be written must not fail what it tells of.
		_, _ = fmt.Fprintf(f, "%s %q %s %d %d fua=%v %dus %s\n",
			time.Now().UTC().Format(time.RFC3339Nano), name, r.call, r.off, r.length, r.fua,
			took.Microseconds(), result)
	}
}
