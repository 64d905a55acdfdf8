package msg

import "github.com/sluice-storage/sluice/errs"

// Service is a range of operations with a handler and an unexpected queue of its own.
type Service struct {
	Name     string  // for Stats and people
	From, To uint16  // operations, both inclusive
	Level    Level   // the least level that its requests have, whatever they say
	Handler  Handler // required
}

// ServeOptions of a Server.
type ServeOptions struct {
	// MaxConns is how many connections are served at once; more are refused with errs.Again.
	// Default 1024.
	MaxConns int

	// MaxCalls is how many calls run at once over all connections. More wait, higher levels first and
	// connections in turn, and hold no more than the receive that they came in. Default 256.
	// Negative: the handlers have an admission of their own, and a call runs as soon as it has come;
	// how many can is bounded by the connections and their credits.
	MaxCalls int

	// IdleWorkers is how many goroutines are kept for the next calls. Default 64.
	IdleWorkers int

	// Services have handlers and levels of their own; what none of them names goes to the handler
	// given to Serve. Their ranges do not overlap.
	Services []Service
}

func (o ServeOptions) withDefaults() ServeOptions {
	o.MaxConns = or(o.MaxConns, 1024)
	o.MaxCalls = or(o.MaxCalls, 256)
	o.IdleWorkers = or(o.IdleWorkers, 64)
	return o
}

func (o *ServeOptions) validate() error {
	if o.MaxConns < 1 || o.IdleWorkers < 0 {
		return errs.Newf(errs.Invalid, "msg.ServeOptions", "", "a limit is negative")
	}
	for i := range o.Services {
		s := &o.Services[i]
		if s.Handler == nil || s.From > s.To || s.Level >= MaxLevels {
			return errs.Newf(errs.Invalid, "msg.ServeOptions", s.Name,
				"a service without a handler, range or level")
		}
		for _, other := range o.Services[:i] {
			if s.From <= other.To && other.From <= s.To {
				return errs.Newf(errs.Invalid, "msg.ServeOptions", s.Name,
					"its operations overlap those of %s", other.Name)
			}
		}
	}
	return nil
}

// serviceOf finds the service of an operation; nil for the server's own handler. There are few.
func (o *ServeOptions) serviceOf(op uint16) *Service {
	for i := range o.Services {
		if v := &o.Services[i]; v.From <= op && op <= v.To {
			return v
		}
	}
	return nil
}
