package memkv

import (
	"bytes"

	"github.com/sluice-storage/sluice/kv"
)

// node is a node of a persistent treap: nodes never change once they are reachable, so a root is
// a snapshot, and a change copies only the path from the root. Priorities are hashes of the keys,
// so the shape depends on the contents alone and runs repeat exactly.
type node struct {
	key, value  []byte
	version     kv.Version
	priority    uint64
	left, right *node
}

// priorityOf is FNV-1a with a final mix; it only has to be even, not secret.
func priorityOf(key []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, b := range key {
		h = (h ^ uint64(b)) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	return h ^ h>>33
}

// get returns the node of key or nil.
func (n *node) get(key []byte) *node {
	for n != nil {
		switch c := bytes.Compare(key, n.key); {
		case c < 0:
			n = n.left
		case c > 0:
			n = n.right
		default:
			return n
		}
	}
	return nil
}

// put returns the tree with x in it, in place of a node with the same key. x must be new and
// childless.
func (n *node) put(x *node) *node {
	if n == nil {
		return x
	}
	c := bytes.Compare(x.key, n.key)
	if c == 0 {
		x.left, x.right = n.left, n.right
		return x
	}
	// Equal keys have equal priorities: the key cannot be hidden below a smaller priority.
	if x.priority > n.priority {
		x.left, x.right = n.split(x.key)
		return x
	}
	m := *n
	if c < 0 {
		m.left = n.left.put(x)
	} else {
		m.right = n.right.put(x)
	}
	return &m
}

// remove returns the tree without key.
func (n *node) remove(key []byte) *node {
	if n == nil {
		return nil
	}
	c := bytes.Compare(key, n.key)
	if c == 0 {
		return join(n.left, n.right)
	}
	m := *n
	if c < 0 {
		m.left = n.left.remove(key)
	} else {
		m.right = n.right.remove(key)
	}
	return &m
}

// split returns the keys below key and the others.
func (n *node) split(key []byte) (below, rest *node) {
	if n == nil {
		return nil, nil
	}
	m := *n
	if bytes.Compare(n.key, key) < 0 {
		m.right, rest = n.right.split(key)
		return &m, rest
	}
	below, m.left = n.left.split(key)
	return below, &m
}

// join returns the tree of a and b; all keys of a are below those of b.
func join(a, b *node) *node {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	if a.priority > b.priority {
		m := *a
		m.right = join(a.right, b)
		return &m
	}
	m := *b
	m.left = join(a, b.left)
	return &m
}

// walk calls fn for the nodes in [start, end) in order until it returns false, and tells whether
// it went to the end. An empty end means no upper bound.
func (n *node) walk(start, end []byte, fn func(*node) bool) bool {
	if n == nil {
		return true
	}
	above := bytes.Compare(n.key, start) >= 0
	below := len(end) == 0 || bytes.Compare(n.key, end) < 0
	if above && !n.left.walk(start, end, fn) {
		return false
	}
	if above && below && !fn(n) {
		return false
	}
	return !below || n.right.walk(start, end, fn)
}
