// Package invariant is where programmer errors go: a broken contract panics with a clear text
// instead of damaging data later. Operating errors (disks, peers, users) are values of package
// errs, never panics. Expensive checks hide behind the build tag "invariants", see Enabled.
package invariant

import "fmt"

// Check panics with the formatted text unless ok. Keep the arguments cheap: they are evaluated
// always.
func Check(ok bool, format string, args ...any) {
	if !ok {
		panic("broken invariant: " + fmt.Sprintf(format, args...))
	}
}
