package lock

// tree holds entries by their intervals: a treap whose order is the start, then the serial, and
// whose shape comes from a mix of the serials. Each node knows the largest end and the least and
// largest serial of its subtree, so that a search skips what lies elsewhere, what is too late, and
// what is too early.
type tree struct{ root *entry }

// node is an entry's place in a tree.
type node struct {
	left, right *entry
	priority    uint64
	maxEnd      int64
	minSerial   uint64
	maxSerial   uint64
}

// mix spreads serials over all numbers (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func before(a, b *entry) bool {
	return a.start < b.start || a.start == b.start && a.serial < b.serial
}

// update computes what a node knows of its subtree.
func (e *entry) update() {
	e.maxEnd, e.minSerial, e.maxSerial = e.end, e.serial, e.serial
	for _, c := range [2]*entry{e.left, e.right} {
		if c != nil {
			e.maxEnd = max(e.maxEnd, c.maxEnd)
			e.minSerial = min(e.minSerial, c.minSerial)
			e.maxSerial = max(e.maxSerial, c.maxSerial)
		}
	}
}

func (t *tree) insert(e *entry) {
	e.node = node{priority: mix(e.serial)}
	t.root = insert(t.root, e)
}

func insert(at, e *entry) *entry {
	if at == nil {
		e.update()
		return e
	}
	if e.priority > at.priority {
		e.left, e.right = split(at, e)
		e.update()
		return e
	}
	if before(e, at) {
		at.left = insert(at.left, e)
	} else {
		at.right = insert(at.right, e)
	}
	at.update()
	return at
}

// split cuts a subtree into what is before an entry and what is not.
func split(at, by *entry) (low, high *entry) {
	if at == nil {
		return nil, nil
	}
	if before(at, by) {
		at.right, high = split(at.right, by)
		at.update()
		return at, high
	}
	low, at.left = split(at.left, by)
	at.update()
	return low, at
}

func (t *tree) remove(e *entry) { t.root = remove(t.root, e) }

func remove(at, e *entry) *entry {
	switch {
	case at == e:
		return join(e.left, e.right)
	case before(e, at):
		at.left = remove(at.left, e)
	default:
		at.right = remove(at.right, e)
	}
	at.update()
	return at
}

func join(low, high *entry) *entry {
	switch {
	case low == nil:
		return high
	case high == nil:
		return low
	case low.priority > high.priority:
		low.right = join(low.right, high)
		low.update()
		return low
	}
	high.left = join(low, high.left)
	high.update()
	return high
}

// find visits the entries that overlap [start, end] and are older than the serial, in no order,
// until visit returns true for one, which it returns.
func (t *tree) find(start, end int64, serial uint64, visit func(*entry) bool) *entry {
	return find(t.root, start, end, serial, visit)
}

func find(at *entry, start, end int64, serial uint64, visit func(*entry) bool) *entry {
	if at == nil || at.maxEnd < start || at.minSerial >= serial {
		return nil
	}
	if at.overlaps(start, end) && at.serial < serial && visit(at) {
		return at
	}
	if e := find(at.left, start, end, serial, visit); e != nil {
		return e
	}
	if at.start > end {
		return nil
	}
	return find(at.right, start, end, serial, visit)
}

// first is the entry with the least start that overlaps [start, end] and is of another owner.
func (t *tree) first(start, end int64, not owner) *entry { return first(t.root, start, end, not) }

func first(at *entry, start, end int64, not owner) *entry {
	if at == nil || at.maxEnd < start {
		return nil
	}
	if e := first(at.left, start, end, not); e != nil || at.start > end {
		return e
	}
	if at.end >= start && at.owner != not {
		return at
	}
	return first(at.right, start, end, not)
}

// latest is the newest entry that overlaps [start, end], is of another owner and newer than the
// given one, which it returns otherwise. Where all overlap it goes down one path.
func (t *tree) latest(start, end int64, not owner, best *entry) *entry {
	return latest(t.root, start, end, not, best)
}

func latest(at *entry, start, end int64, not owner, best *entry) *entry {
	if at == nil || at.maxEnd < start || best != nil && at.maxSerial <= best.serial {
		return best
	}
	if at.overlaps(start, end) && at.owner != not && (best == nil || at.serial > best.serial) {
		best = at
	}
	first, second := at.left, at.right
	if at.start > end {
		second = nil
	} else if first == nil || second != nil && second.maxSerial > first.maxSerial {
		first, second = second, first
	}
	best = latest(first, start, end, not, best)
	return latest(second, start, end, not, best)
}
