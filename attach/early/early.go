//go:build cgo && linux

package early

// #include "early.h"
import "C"

// parent is the descriptor by which this process tells its parent to end; below 0 it has none that
// waits.
func parent() int { return int(C.early_parent()) }
