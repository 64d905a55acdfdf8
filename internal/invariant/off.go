//go:build !invariants

package invariant

// Enabled tells whether the expensive checks (ownership, poison on free) are compiled in.
const Enabled = false
