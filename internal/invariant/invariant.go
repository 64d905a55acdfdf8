// Package invariant is where programmer errors go: a broken contract panics with a clear text
// instead of damaging data later. Operating errors (disks, peers, users) are values of package
// errs, never panics. Expensive checks hide behind the build tag "invariants", see Enabled.
package invariant

import "fmt"

// Check panics with the formatted text unless ok. On hot paths give it a text without arguments:
// they are evaluated, and moved to the heap, always.
func Check(ok bool, format string, args ...any) {
	if !ok {
		panic("broken invariant: " + fmt.Sprintf(format, args...))
	}
}
