package guard

import (
	"context"
	"slices"
	"strings"

	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
)

// show makes of inodes in an answer what the client knows them by: the top of its subtree is its
// root. Inodes that it has reached, and of which not all names are known, are remembered.
func (p *Pass) show(r *meta.Result) {
	for _, a := range [...]*meta.Attr{&r.Attr, &r.Handle.Attr, &r.Found.Dir, &r.Found.Attr,
		&r.Scanned.Dir} {
		p.showAttr(a)
	}
	for _, list := range [...][]meta.Entry{r.Entries, r.Scanned.Entries} {
		for i := range list {
			if list[i].Attr != nil {
				p.showAttr(list[i].Attr)
			}
		}
	}
	for i := range r.Handles {
		p.showAttr(&r.Handles[i].Attr)
	}
	for i := range r.Scanned.Also {
		also := &r.Scanned.Also[i]
		p.showAttr(&also.Dir)
		for j := range also.Entries {
			if also.Entries[j].Attr != nil {
				p.showAttr(also.Entries[j].Attr)
			}
		}
	}
	if p.top == meta.RootIno {
		return
	}
	p.showIno(&r.Lock.Ino)
	if slices.ContainsFunc(r.Locks, func(l meta.Lock) bool { return l.Ino == p.top }) {
		r.Locks = slices.Clone(r.Locks)
		for i := range r.Locks {
			p.showIno(&r.Locks[i].Ino)
		}
	}
	if slices.ContainsFunc(r.Heard.Recalls, func(x meta.Recall) bool { return x.Ino == p.top }) {
		r.Heard.Recalls = slices.Clone(r.Heard.Recalls)
		for i := range r.Heard.Recalls {
			p.showIno(&r.Heard.Recalls[i].Ino)
		}
	}
}

func (p *Pass) showAttr(a *meta.Attr) {
	if a.Scattered {
		p.reached.add(a.Ino)
	}
	if a.Ino == p.top {
		a.Parent = p.top
	}
	p.showIno(&a.Ino)
	p.showIno(&a.Parent)
}

func (p *Pass) showIno(ino *meta.Ino) {
	if *ino == p.top && *ino != 0 {
		*ino = meta.RootIno
	}
}

// endServers leaves out how many files there were ever: that is not a client's business.
func endServers(_ context.Context, _ *Pass, r *meta.Result) error {
	r.Servers = slices.Clone(r.Servers)
	for i := range r.Servers {
		r.Servers[i].MaxFile = 0
	}
	return nil
}

// endHosts leaves out by what a start of a host is told from another: only who could claim to be it
// has a use for that.
func endHosts(_ context.Context, _ *Pass, r *meta.Result) error {
	r.Hosts = slices.Clone(r.Hosts)
	for i := range r.Hosts {
		r.Hosts[i].Start = 0
	}
	return nil
}

// endListClients leaves out whoever is not the client itself. The service has done so already: it
// is the one that makes pages.
func endListClients(_ context.Context, p *Pass, r *meta.Result) error {
	own := meta.Peer{Kind: identity.Client, Name: p.name}
	r.Clients = slices.DeleteFunc(slices.Clone(r.Clients), func(c meta.Client) bool {
		return c.Peer != own
	})
	return nil
}

// endQuota tells of a quota as it looks from inside the subtree. That of a larger tree is told
// without its place.
func endQuota(_ context.Context, p *Pass, r *meta.Result) error {
	q := &r.Quota
	at, err := p.g.grounds.Stand(p.top, q.Dir)
	if err != nil || at != meta.Inside {
		q.Dir, q.Path = meta.RootIno, ""
		return notGone(err)
	}
	p.showIno(&q.Dir)
	q.Path = pathBelow(p.rights.Path, q.Path)
	return nil
}

// pathBelow is a path as seen from a directory; empty if it cannot be told.
func pathBelow(top, path string) string {
	if top == "/" || path == "" {
		return path
	}
	rest, ok := strings.CutPrefix(path, top)
	switch {
	case ok && rest == "":
		return "/"
	case ok && rest[0] == '/':
		return rest
	}
	return ""
}
