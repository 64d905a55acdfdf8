// Package version tells which build of sluice this process is, so that hosts and clients of a
// cluster can say it to each other. The program sets it once, at its start; a program that only
// uses the library is known by what the Go tool has noted in it.
package version

import (
	"runtime/debug"
	"strings"
	"sync/atomic"
)

// Max is how many bytes of a version others keep.
const Max = 64

// Unknown is the version of a build that nobody has given one.
const Unknown = "unversioned"

const module = "github.com/sluice-storage/sluice"

// set is what the program says of itself; it is here because it is the same for all that a process
// does.
var set atomic.Pointer[string]

// Set says which version this is.
func Set(text string) {
	text = Clean(text)
	set.Store(&text)
}

// String is the version of this process.
func String() string {
	if v := set.Load(); v != nil && *v != "" {
		return *v
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Unknown
	}
	if info.Main.Path == module && info.Main.Version != "" {
		return Clean(info.Main.Version)
	}
	for _, d := range info.Deps {
		if d.Path == module {
			return Clean(d.Version)
		}
	}
	return Unknown
}

// Clean makes a version fit a line of a table, wherever it comes from.
func Clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return -1
		}
		return r
	}, text)
	return text[:min(len(text), Max)]
}
