package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
)

// statusLine shows how far something is, in a line of a terminal that is written again and again.
type statusLine struct {
	to   io.Writer // nil: nobody is looking
	last time.Time
	open bool
}

// statusEvery is how often the line changes at most.
const statusEvery = 100 * time.Millisecond

func newStatusLine(cmd *cobra.Command, quiet bool) *statusLine {
	f, ok := cmd.ErrOrStderr().(*os.File)
	if quiet || !ok || !isTerminal(f) {
		return &statusLine{}
	}
	return &statusLine{to: f}
}

func (s *statusLine) show(format string, args ...any) {
	if s.to == nil || time.Since(s.last) < statusEvery {
		return
	}
	s.last, s.open = time.Now(), true
	fmt.Fprintf(s.to, "\r\x1b[K"+format, args...)
}

// end makes room for other lines.
func (s *statusLine) end() {
	if s.open {
		s.open = false
		fmt.Fprint(s.to, "\r\x1b[K")
	}
}
