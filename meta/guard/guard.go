// Package guard stands before the metadata service and holds the requests of clients against their
// rights (identity.Rights): a subtree, read-only or not, whom they may speak for, which volumes. A
// request that goes beyond them does not reach the service. Requests of hosts, and of those on the
// service's own host who have the cluster's secret, do not come here.
//
// What an operation means is a row of one table (rules.go); an operation without a row is for
// nobody. Begin checks a request and rewrites it: the client's root directory becomes the directory
// that its rights name, users become those that are believed. End rewrites the answer. The guard
// keeps no state but what it has looked up: rights for a second, and inodes that were reached by
// names that are not known otherwise.
//
// A directory is inside if the way up from it leads through the top of the subtree, anything else
// if one of the directories that it has names in is (meta.Grounds). What a client has open stays
// its own when it is moved elsewhere, or removed. An inode outside is errs.NotFound, as one that
// does not exist: which numbers others use is none of the client's business. (errs.Stale would make
// it believe that its session is lost.)
//
// Whether a session belongs to who uses it is told by its name: those of a client begin with
// Prefix.
//
// Read guard.go first, then rules.go, admit.go and users.go.
package guard

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/internal/logonce"
	"github.com/sluice-storage/sluice/meta"
)

// Options of a Guard.
type Options struct {
	// Fresh is how long the rights of a client, and what its path leads to, are believed without
	// being looked up again. Default 1 s.
	Fresh time.Duration

	// Now is the clock for that. Default time.Now.
	Now func() time.Time

	// Log hears of refusals, once per client and minute. Default: nobody.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Fresh == 0 {
		o.Fresh = time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Guard holds requests against rights. Safe for concurrent use.
type Guard struct {
	service meta.Service
	grounds meta.Grounds // nil: the service does not tell; then no client is served
	opt     Options
	quiet   logonce.Logger
	refused [reasons]atomic.Uint64

	mu      sync.RWMutex
	clients map[string]*client
}

// New makes a guard for a service, which must implement meta.Grounds for clients to be served.
func New(service meta.Service, opt Options) *Guard {
	opt = opt.withDefaults()
	grounds, _ := service.(meta.Grounds)
	return &Guard{service: service, grounds: grounds, opt: opt,
		quiet: logonce.Logger{Log: opt.Log}, clients: map[string]*client{}}
}

// reason is why a request was refused.
type reason int

const (
	notMember reason = iota
	notForClients
	readOnly
	outside
	noVolume
	foreignSession
	noPath
	reasons
)

var reasonNames = [reasons]string{"member", "operation", "read_only", "outside", "volume",
	"session", "path"}

// Count is how often requests were refused for one reason.
type Count struct {
	Reason string
	N      uint64
}

// Counts tells all of them.
func (g *Guard) Counts() []Count {
	all := make([]Count, reasons)
	for i := range all {
		all[i] = Count{reasonNames[i], g.refused[i].Load()}
	}
	return all
}

// Pass is a request that was let through, until it is answered.
type Pass struct {
	*client
	g  *Guard
	op meta.Op

	asRoot  bool        // the inode is a volume's that its rights name
	dropped bool        // Close: what the client wanted to tell with it was not
	closed  []errs.Kind // CloseMany: what to answer instead; nil: nothing
	gone    []bool      // Claim: handles that were left out
	lost    []meta.Lock // ClaimLocks: locks that were
	from    string      // ListVolumes: its arguments
	max     int
}

// Begin checks a request of a client, whose name is that of args.Caller.Peer, and makes of it what
// the service is to be asked. It waits for nobody.
func (g *Guard) Begin(ctx context.Context, op meta.Op, args *meta.Args) (Pass, error) {
	p := Pass{g: g, op: op}
	var err error
	if p.client, err = g.clientOf(ctx, args.Caller.Peer.Name); err != nil {
		if p.client != nil {
			err = p.refuse(notMember, err)
		}
		return p, err
	}
	if int(op) >= len(rules) {
		return p, p.refuse(notForClients, p.forbidden("this is no operation"))
	}
	r := &rules[op]
	switch {
	case r.what == unsaid || r.what == adminOnly:
		return p, p.refuse(notForClients, p.forbidden("this is for hosts of the cluster"))
	case r.what == changes && p.rights.ReadOnly:
		return p, p.refuse(readOnly, p.isReadOnly())
	}
	args.Caller.ReadOnly = p.rights.ReadOnly
	if err := p.owns(args.Caller.Session); err != nil {
		return p, err
	}
	if err := p.uses(r.uses, args); err != nil {
		return p, err
	}
	p.believe(r.uses, args)
	if r.begin != nil {
		err = r.begin(&p, args)
	}
	return p, err
}

// End makes of an answer what the client is to be told. err is the service's.
func (p *Pass) End(ctx context.Context, r *meta.Result, err error) error {
	rule := &rules[p.op]
	if err == nil && rule.end != nil {
		err = rule.end(ctx, p, r)
	}
	if err == nil {
		p.show(r)
	}
	return err
}

// refuse counts and logs a refusal, and returns why.
func (p *Pass) refuse(why reason, err error) error {
	p.g.refused[why].Add(1)
	p.g.quiet.Warn(identity.Client.String()+" "+p.name, "refused a request of a client", "op",
		p.op.String(), "why", err)
	return err
}

func (p *Pass) forbidden(why string) error {
	return errs.Newf(errs.Perm, "meta."+p.op.String(), "", "client %s: %s", p.name, why)
}

func (p *Pass) isReadOnly() error {
	return errs.Newf(errs.ReadOnly, "meta."+p.op.String(), "", "client %s changes nothing", p.name)
}
