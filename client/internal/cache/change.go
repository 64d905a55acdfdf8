package cache

import "github.com/sluice-storage/sluice/meta"

// Change is an operation of the client itself on its way: nothing is answered from the cache that
// it may change, and nothing that others hear of it meanwhile is taken in. Made by Cache.Change,
// given all that it changes by Name and Inode before it is sent, and ended by End.
type Change struct {
	c     *Cache
	at    Token
	parts []part
}

// part is something that is changed. node is that of its inode, nil if there was no lease.
type part struct {
	subject
	node  *node
	at    Token
	exact bool  // the attributes were known before; of a name: what it stood for
	was   entry // that

	data    []byte // of a small file, where it was known
	hasData bool
}

// Change begins one.
func (c *Cache) Change() *Change { return &Change{c: c} }

// Name says that a name in a directory is changed, and with it the directory's times.
func (x *Change) Name(dir meta.Ino, name string) *Change {
	x.begin(subject{dir, naming, name})
	return x.Inode(dir)
}

// Inode says that the attributes of an inode, or its data, are changed. 0 stands for none.
func (x *Change) Inode(ino meta.Ino) *Change {
	if ino != 0 {
		x.begin(subject{ino: ino, what: attributes})
	}
	return x
}

func (x *Change) begin(s subject) {
	c := x.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range x.parts {
		if x.parts[i].subject == s {
			return
		}
	}
	n := c.nodes[s.ino]
	p := part{subject: s, node: n, exact: n != nil && n.exact}
	if s.what == naming && n != nil {
		p.was, p.exact = n.names.find(s.name)
		p.exact = p.exact && c.busy[s] == 0 && c.validLocked()
	}
	p.at = c.recent.note(s)
	if len(x.parts) == 0 {
		x.at = p.at
	}
	c.busy[s]++
	if n != nil && s.what == attributes {
		p.data, p.hasData = n.data, n.hasData
		n.exact = false
		n.data, n.hasData = nil, false
		c.weighLocked(n)
	}
	x.parts = append(x.parts, p)
}

// Outcome is what a change has led to, as far as its answer tells.
type Outcome struct {
	// Failed: nothing has changed. Otherwise names are what Names says, and names of the change that
	// it does not mention are not known any more.
	Failed bool
	Names  []Named

	// At, if not zero, is the time that the service has for it: the directories of its names have
	// changed at that time, by these names and nothing else, and so has Moved, the inode that a
	// rename has given another name in the same directory.
	At    meta.Time
	Moved meta.Ino

	// Attrs are attributes as the answer has them, with their leases. Born: the change has made what
	// they are of, so that a directory is empty.
	Attrs []*meta.Attr
	Born  bool

	// Tenure, with Born: see Cache.Tenure. Target: what a link that was made points to.
	Tenure uint64
	Target string

	// Told is what the client has told the service, which answers without attributes.
	Told *Told
}

// Told is what the last writer of a small file tells with its closing. What else the attributes say
// stays as it was: so it counts only where they were known, and none but these have changed.
type Told struct {
	Ino      meta.Ino
	Size     int64
	TruncSeq uint64
	Mtime    meta.Time
	Data     []byte // becomes the cache's
}

// Named is what a name stands for: nothing where Ino is 0. Cookie may be 0: not known.
type Named struct {
	Dir    meta.Ino
	Name   string
	Ino    meta.Ino
	Type   meta.Type
	Cookie uint64
}

// End takes in what has come of it. Where something else has changed the same meanwhile, of this
// client or of another, it is not known what was first: then it is forgotten.
func (x *Change) End(o Outcome) {
	c := x.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range x.parts {
		p := &x.parts[i]
		p.at = x.finishLocked(p)
		switch {
		case p.node == nil || c.nodes[p.ino] != p.node:
		case p.what == naming:
			x.nameLocked(p, &o)
		case o.Failed && p.at != 0:
			p.node.exact = p.exact
		}
	}
	if !o.Failed && o.At != (meta.Time{}) {
		x.stepLocked(&o)
	}
	for _, a := range o.Attrs {
		x.attrLocked(a, &o)
	}
	if o.Told != nil {
		x.toldLocked(o.Told)
	}
}

// finishLocked ends a part. It returns 0 where it was not alone.
func (x *Change) finishLocked(p *part) Token {
	c := x.c
	alone := c.busy[p.subject] == 1 && c.recent.last(p.subject) == p.at &&
		!c.recent.since(p.at, subject{ino: p.ino, what: whole})
	if c.busy[p.subject]--; c.busy[p.subject] == 0 {
		delete(c.busy, p.subject)
	}
	at := c.recent.note(p.subject)
	if !alone {
		return 0
	}
	return at
}

func (x *Change) nameLocked(p *part, o *Outcome) {
	d := &p.node.names
	defer x.c.boundLocked(p.node)
	if p.at != 0 {
		if o.Failed {
			return
		}
		if e, known := o.named(p.ino, p.name); known {
			d.learn(p.name, e)
			return
		}
	}
	d.drop(p.name)
	d.unsure()
}

// stepLocked brings the attributes up to the change that were known before it.
func (x *Change) stepLocked(o *Outcome) {
	for i := range x.parts {
		p := &x.parts[i]
		if p.what != attributes || !p.exact || p.at == 0 || x.c.nodes[p.ino] != p.node {
			continue
		}
		a := p.node.attr
		switch names, dirs, ok := x.countNames(p.ino, o); {
		case p.ino == o.Moved && x.moved(o):
			a.Ctime = o.At
			if a.Type == meta.Directory {
				a.Ctime = meta.Later(p.node.attr.Ctime, o.At)
			}
		case ok:
			a.Size += names
			a.Nlink = uint32(int64(a.Nlink) + dirs)
			a.Mtime, a.Ctime = o.At, meta.Later(a.Ctime, o.At)
		default:
			continue
		}
		p.node.set(&a)
		p.node.data, p.node.hasData = p.data, p.hasData
		x.c.weighLocked(p.node)
	}
}

// countNames tells by how many names and sub-directories a directory has grown, which the service
// counts; ok: it had names of the change, and all of them are known as they were and as they are.
func (x *Change) countNames(dir meta.Ino, o *Outcome) (names, dirs int64, ok bool) {
	for i := range x.parts {
		p := &x.parts[i]
		if p.what != naming || p.ino != dir {
			continue
		}
		is, known := x.after(p, o)
		if !known {
			return 0, 0, false
		}
		ok = true
		n, d := p.was.counts()
		names, dirs = names-n, dirs-d
		n, d = is.counts()
		names, dirs = names+n, dirs+d
	}
	return names, dirs, ok
}

// moved tells whether what a rename was thought to move is what it has moved: another operation of
// this client may have changed the name before this one began.
func (x *Change) moved(o *Outcome) bool {
	for i := range x.parts {
		p := &x.parts[i]
		if _, known := x.after(p, o); known && p.what == naming && p.was.ino == o.Moved {
			return true
		}
	}
	return false
}

// after is what a name stands for now, if that is known, and what it stood for before, too.
func (x *Change) after(p *part, o *Outcome) (e entry, known bool) {
	if !p.exact || p.at == 0 || p.node == nil || x.c.nodes[p.ino] != p.node {
		return entry{}, false
	}
	return o.named(p.ino, p.name)
}

// counts is what a name adds to the names and sub-directories of its directory.
func (e entry) counts() (names, dirs int64) {
	switch {
	case e.ino == 0:
		return 0, 0
	case e.typ == meta.Directory:
		return 1, 1
	}
	return 1, 0
}

// named is what a name stands for after the change, if that is known.
func (o *Outcome) named(dir meta.Ino, name string) (entry, bool) {
	for i := range o.Names {
		if n := &o.Names[i]; n.Dir == dir && n.Name == name {
			return entry{n.Ino, n.Type, n.Cookie}, true
		}
	}
	return entry{}, false
}

// toldLocked brings the attributes of an inode of this change up to what the service has made of
// what it was told. It takes rights from programs that run with those of their owner, and leaves a
// time alone that is later than the one it is told, unless it is in the future: then nothing is
// known.
func (x *Change) toldLocked(w *Told) {
	for i := range x.parts {
		p := &x.parts[i]
		if p.subject != (subject{ino: w.Ino, what: attributes}) || !p.exact || p.at == 0 ||
			x.c.nodes[p.ino] != p.node {
			continue
		}
		a := p.node.attr
		if !a.Small || a.TruncSeq != w.TruncSeq || a.Mtime.After(w.Mtime) || a.Mode&0o6000 != 0 {
			continue
		}
		a.Size, a.Mtime, a.Ctime = w.Size, w.Mtime, meta.Later(a.Ctime, w.Mtime)
		a.DataVersion, a.Writers = a.DataVersion+1, false
		p.node.set(&a)
		p.node.setData(w.Data)
		x.c.weighLocked(p.node)
	}
}

// attrLocked takes in attributes of an inode of this change, or of one that it has made (Born). If
// nobody has changed that one since, a directory has no names yet. Whoever changes the same name at
// the same time may have changed what was made without knowing it.
func (x *Change) attrLocked(a *meta.Attr, o *Outcome) {
	c := x.c
	s := subject{ino: a.Ino, what: attributes}
	own, leased := false, a.Lease != meta.LeaseNone // own: what it has noted itself does not count
	for i := range x.parts {
		switch p := &x.parts[i]; {
		case p.subject == s:
			own, leased = true, leased && p.at != 0
		case p.what == naming:
			leased = leased && p.at != 0
		}
	}
	if !leased || !own && !c.freshLocked(x.at, s) ||
		c.recent.since(x.at, subject{ino: a.Ino, what: whole}) {
		return
	}
	n := c.makeLocked(a.Ino)
	n.set(a)
	if a.Small && a.Size == 0 {
		n.data, n.hasData = nil, true
	}
	if o.Born && a.Type == meta.Directory {
		n.names = directory{complete: true, listed: true}
	}
	if o.Born {
		n.tenure, n.target = o.Tenure, o.Target
	}
	c.weighLocked(n)
}
