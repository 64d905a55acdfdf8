package config

import (
	"fmt"
	"strings"

	"github.com/sluice-storage/sluice/errs"
)

// Problem is one thing that is wrong with a file.
type Problem struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"` // from 1 on; 0: the file as a whole
	Key    string `json:"key,omitempty"`  // like iod[2].memory: that of the second [[iod]]
	What   string `json:"what"`
	Remedy string `json:"remedy"`
}

// String is the problem in one line, and its remedy.
func (p Problem) String() string { return p.head() + "\n  " + p.Remedy }

func (p Problem) head() string {
	at := p.File
	if p.Line > 0 {
		at = fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	if p.Key != "" {
		at += ": " + p.Key
	}
	return at + ": " + p.What
}

// Invalid is the error of a file with problems, in the order of its lines. Its kind is
// errs.Invalid.
type Invalid []Problem

// Error implements error: all problems, each with its remedy below it but for the last one, which
// is that of Remedy.
func (e Invalid) Error() string {
	var lines []string
	for i, p := range e {
		if i == len(e)-1 {
			lines = append(lines, p.head())
		} else {
			lines = append(lines, p.String())
		}
	}
	return strings.Join(lines, "\n")
}

// Remedy is what to do about the last problem.
func (e Invalid) Remedy() string { return e[len(e)-1].Remedy }

// Unwrap makes errors.Is find the kind.
func (e Invalid) Unwrap() error { return errs.Invalid }

// source is where a Config was read.
type source struct {
	file  string
	lines map[string]int // of keys
}

// Problem is one with a key of this file, found by somebody who knows more than this package.
func (c *Config) Problem(key, what, remedy string) Problem {
	return Problem{File: c.source.file, Line: c.source.line(key), Key: key, What: what,
		Remedy: remedy}
}

// File is where it was read; empty: nowhere.
func (c *Config) File() string { return c.source.file }

// line finds a key, or else the table that it would be in.
func (s source) line(key string) int {
	for key != "" {
		if n := s.lines[key]; n > 0 {
			return n
		}
		key = key[:max(strings.LastIndexByte(key, '.'), 0)]
	}
	return 0
}

// Key is the name of a key in the nth table of a name, n from 0 on.
func Key(table string, n int, name string) string {
	return fmt.Sprintf("%s[%d].%s", table, n+1, name)
}

// Suggest is the name among others that is most like what somebody wrote; empty if none is.
func Suggest(wrote string, known []string) string {
	// Two letters in the wrong order count as two; but a word of which nothing is left is another one.
	best, least := "", min(max(len(wrote)/3, 2), len(wrote)-1)+1
	for _, k := range known {
		if d := distance(wrote, k); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance counts letters to be added, removed or exchanged. Long texts are like nothing.
func distance(a, b string) int {
	const longest = 64
	if len(a) > longest || len(b) > longest {
		return longest
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
