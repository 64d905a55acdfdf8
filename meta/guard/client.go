package guard

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
)

// clientsMax is of how many clients the rights are remembered. When there are more all are looked
// up again.
const clientsMax = 4096

// client is what is known of a client, for a while. It is not changed, but for reached.
type client struct {
	name    string
	prefix  string // of the names of its sessions
	rights  identity.Rights
	top     meta.Ino  // the directory that it takes for the root
	missing error     // why there is none
	refused error     // why nothing is done for it
	until   time.Time // it is looked up again

	reached *reached
}

// Prefix is what the names of all sessions of a client begin with. No name of a client has a slash,
// so that none begins with another's.
func Prefix(client string) string { return identity.Client.String() + "/" + client + "/" }

// clientOf finds out who a client is. With an error and a client it is refused; with an error alone
// that cannot be told now.
func (g *Guard) clientOf(ctx context.Context, name string) (*client, error) {
	now := g.opt.Now()
	g.mu.RLock()
	c := g.clients[name]
	g.mu.RUnlock()
	if c == nil || !now.Before(c.until) {
		next, err := g.look(ctx, name, now)
		if err != nil {
			return nil, err
		}
		c = g.keep(next)
	}
	return c, c.refused
}

// keep remembers what was looked up.
func (g *Guard) keep(c *client) *client {
	g.mu.Lock()
	defer g.mu.Unlock()
	if old := g.clients[c.name]; old != nil && old.top == c.top {
		c.reached = old.reached
	}
	if len(g.clients) >= clientsMax {
		g.clients = map[string]*client{}
	}
	g.clients[c.name] = c
	return c
}

// look looks a client up.
func (g *Guard) look(ctx context.Context, name string, now time.Time) (*client, error) {
	c := &client{name: name, prefix: Prefix(name), until: now.Add(g.opt.Fresh), reached: &reached{}}
	if g.grounds == nil {
		c.refused = errs.Newf(errs.Unsupported, "meta", "", "this service does not serve clients that "+
			"have rights")
		return c, nil
	}
	m, err := g.service.GetMember(ctx, meta.Caller{}, identity.Client, name)
	switch errs.KindOf(err) {
	case errs.OK:
	case errs.NotFound, errs.Invalid:
		c.refused = errs.Newf(errs.Perm, "meta", "", "client %s is no member of the cluster (any more)",
			name)
		return c, nil
	default:
		return nil, err
	}
	c.rights = m.Rights
	top, err := g.grounds.Resolve(m.Rights.Path)
	switch k := errs.KindOf(err); k {
	case errs.OK:
		c.top = top
	case errs.NotFound, errs.NotDir:
		text := "is not there (yet): have it made on a host of the cluster"
		if k == errs.NotDir {
			text = "is no directory, or leads through what is none"
		}
		c.missing = errs.Newf(k, "meta", "", "%s, which client %s may see, %s", m.Rights.Path, name, text)
	default:
		return nil, err
	}
	return c, nil
}

// reachedMax is how many inodes are remembered that a client has reached by names which are not
// noted: those that have names in more than meta.HomesMax directories.
const reachedMax = 4096

// reached remembers them; the oldest are forgotten first. Who looks a name up again is told again.
type reached struct {
	mu    sync.Mutex
	set   map[meta.Ino]bool
	order []meta.Ino
}

func (r *reached) add(ino meta.Ino) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.set[ino] {
		return
	}
	if r.set == nil {
		r.set = map[meta.Ino]bool{}
	}
	if len(r.order) >= reachedMax {
		delete(r.set, r.order[0])
		r.order = slices.Delete(r.order, 0, 1)
	}
	r.set[ino] = true
	r.order = append(r.order, ino)
}

func (r *reached) has(ino meta.Ino) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.set[ino]
}
