//go:build invariants

package mem

import (
	"fmt"
	"runtime"
	"strings"
)

// Place is the source line that took something, under -tags invariants; otherwise it is empty and
// costs nothing.
type Place struct {
	pcs [12]uintptr
	n   int
}

// Mark remembers who called into this package, or one below it.
func (p *Place) Mark() { p.n = runtime.Callers(2, p.pcs[:]) }

// String is file and line of the nearest caller from outside, or of a test of this package.
func (p *Place) String() string {
	if p.n == 0 {
		return "a place that was not recorded"
	}
	frames := runtime.CallersFrames(p.pcs[:p.n])
	for {
		f, more := frames.Next()
		inside := strings.Contains(f.Function, "sluice/mem.") ||
			strings.Contains(f.Function, "sluice/mem/")
		if !inside || strings.HasSuffix(f.File, "_test.go") || !more {
			return fmt.Sprintf("%s:%d", f.File, f.Line)
		}
	}
}
