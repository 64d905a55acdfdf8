package peer

import (
	"errors"
	"log/slog"
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/shm"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/fabric/verbs"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg"
)

// The names of the providers.
const (
	SHM   = "shm"
	Verbs = "verbs"
	TCP   = "tcp"
)

// Names are all providers, best first. Every peer can be reached by the last one.
func Names() []string { return []string{SHM, Verbs, TCP} }

// Options say which providers Open opens, and how.
type Options struct {
	// Use are the names of the providers that may be used, in any order, with TCP among them.
	// Default: all. One that this host does not have is left out, with the reason in Missing.
	Use []string

	// Secret is what both sides of a tcp connection prove to each other; see tcp.Secret. A process
	// that listens needs one with a file. Default: the one in the file that the server names, if
	// it belongs to root or to this user.
	Secret *tcp.Secret

	// Security is how peers prove who they are by certificates, in the place of a Secret; see
	// Security. Default nil: by the Secret, on loopback only.
	Security *tcp.Security

	// Listens is set by a process that listens. It offers none of its memory: servers map the memory
	// of their clients, not the other way round. Its devices demand tokens, which are issued to
	// clients that are authenticated by tcp. Default false: it only dials.
	Listens bool

	// Limits are measured limits of providers, by name; see package msg/tune. Default: msg's.
	Limits map[string]msg.Limits

	// Progress is which goroutines poll. Default msg.ProgressAny.
	Progress msg.Progress

	// Logger gets the providers that cannot be opened. Default: discard.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if len(o.Use) == 0 {
		o.Use = Names()
	}
	if o.Secret == nil && o.Security == nil {
		o.Secret = &tcp.Secret{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o *Options) validate() error {
	for _, name := range o.Use {
		if !slices.Contains(Names(), name) {
			return errs.Newf(errs.Invalid, "peer.Options", name, "there is no such provider")
		}
	}
	if !slices.Contains(o.Use, TCP) {
		return errs.Newf(errs.Invalid, "peer.Options", "", "without %s nobody is found", TCP)
	}
	if o.Listens && o.Security == nil && o.Secret.File == "" {
		return errs.Newf(errs.Invalid, "peer.Options", "", "a process that listens needs a secret")
	}
	return nil
}

// Providers are the open providers of a process. Close closes those that Open has opened, not those
// that the user has put into Domains.
type Providers struct {
	Domains []fabric.Domain // best first; addresses without a provider's name are of the last one
	Missing []Step          // those that are not among them, with the reasons
	Tokens  *fabric.Tokens  // issued by a process that listens, where a domain demands them
	Limits  map[string]msg.Limits

	Progress msg.Progress // of networks on these providers

	changed func() <-chan struct{} // see tcp.Security.Changed; nil: nothing changes

	// Memory is the source of memory for a process that only dials: servers of this host can access it
	// directly. nil: they cannot.
	Memory mem.Source

	// Lent is the source of memory that a process that listens lends to clients of this host who are
	// root or its own user: they read all of it directly. nil: there is none, as where peers have
	// certificates, by which a client may have fewer rights than its user.
	Lent mem.Source
}

const (
	// tokensMax is how many tokens can be unused at one moment. A client that connects is given one
	// for each place that asks for one, and those that it does not use count until they are too old:
	// so it is some for each of a thousand clients that come at once. 80 bytes each.
	tokensMax = 8192

	// peerMemory is how much of one client's memory a server maps at most, in bytes; accesses to more
	// go through the rings.
	peerMemory = 1 << 30
)

// Open opens the providers that this host has.
func Open(opts Options) (*Providers, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	p := &Providers{Limits: opts.Limits, Progress: opts.Progress}
	if opts.Security != nil {
		p.changed = opts.Security.Changed
	}
	if opts.Listens {
		p.Tokens = fabric.NewTokens(tokensMax)
	}
	for _, name := range Names() {
		err := errs.Newf(errs.Unsupported, "peer.Open", name, "not asked for")
		if slices.Contains(opts.Use, name) {
			if err = p.open(name, &opts); err == nil {
				continue
			}
			opts.Logger.Info("a provider is not to be had here", "provider", name, "why", err)
		}
		if name == TCP {
			_ = p.Close() // report why there is no tcp
			return nil, err
		}
		p.Missing = append(p.Missing, Step{Provider: name, Err: err})
	}
	return p, nil
}

func (p *Providers) open(name string, opts *Options) error {
	var d fabric.Domain
	var err error
	switch name {
	case SHM:
		d, err = p.openSHM(opts)
	case Verbs:
		d, err = verbs.Open(verbs.Options{Tokens: p.Tokens, Log: opts.Logger})
	case TCP:
		d, err = tcp.Open(tcp.Options{Secret: opts.Secret, Security: opts.Security, Log: opts.Logger})
	}
	if err == nil {
		p.Domains = append(p.Domains, d)
	}
	return err
}

// openSHM opens shared memory, where the kernel tells who dials. That is enough where users of this
// host are trusted with everything or with nothing; where peers have certificates it says nothing
// about whose rights a process has: then who dials needs a token that it was given under its
// certificate, and may be of any user. Without measured limits it has no eager slots: a server
// reads arenas in one copy, and a slot would add one.
func (p *Providers) openSHM(opts *Options) (fabric.Domain, error) {
	var how shm.Options
	switch {
	case !opts.Listens:
		how.Arenas = shm.NewArenas()
	case opts.Security != nil:
		how.Tokens, how.AnyClient, how.PeerBytes = p.Tokens, true, peerMemory
	default:
		how.Lent, how.PeerBytes = shm.NewLent(), peerMemory
	}
	d, err := shm.Open(how)
	if err != nil {
		return nil, err
	}
	if how.Lent != nil {
		p.Lent = how.Lent
	}
	if how.Arenas != nil {
		p.Memory = how.Arenas
	}
	if _, measured := p.Limits[SHM]; !measured {
		limits := map[string]msg.Limits{SHM: {EagerMax: -1}}
		for name, l := range p.Limits {
			limits[name] = l
		}
		p.Limits = limits
	}
	return d, nil
}

// Close ends all providers, after everything that runs on them.
func (p *Providers) Close() error {
	var all []error
	for _, d := range p.Domains {
		all = append(all, errs.Wrap("peer.Close", d.Caps().Provider, d.Close()))
	}
	return errors.Join(all...)
}

// Base is the provider that addresses without a name are of.
func (p *Providers) Base() fabric.Domain { return p.Domains[len(p.Domains)-1] }
