package main

import (
	"io/fs"
	"strconv"
	"strings"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/meta"
)

// modeChange is a mode as chmod(1) takes it: a number, or clauses like u+x,go=.
type modeChange struct {
	number  uint32 // 07777
	exact   bool   // the number is meant
	all     bool   // it was written with so many digits that it counts for all bits
	clauses []modeClause
}

type modeClause struct {
	who   string // of "ugo"
	asked bool   // somebody was named; otherwise the umask counts
	op    byte   // + - =
	what  string // of "rwxXst", or one of u, g, o: as they have it
}

// parseModeChange reads one.
func parseModeChange(text string) (modeChange, error) {
	bad := func() (modeChange, error) {
		return modeChange{}, refuse(strconv.Quote(text)+" is no mode",
			"Write it like 640, 1777, u=rw,go=r, +x or g-w")
	}
	if n, err := strconv.ParseUint(text, 8, 12); err == nil {
		return modeChange{number: uint32(n), exact: true, all: len(text) > 4}, nil
	}
	var m modeChange
	for _, part := range strings.Split(text, ",") {
		who := part[:len(part)-len(strings.TrimLeft(part, "ugoa"))]
		rest := part[len(who):]
		if rest == "" {
			return bad()
		}
		for rest != "" {
			op := rest[0]
			if !strings.ContainsRune("+-=", rune(op)) {
				return bad()
			}
			end := strings.IndexAny(rest[1:], "+-=") + 1
			if end == 0 {
				end = len(rest)
			}
			what := rest[1:end]
			rest = rest[end:]
			copies := len(what) == 1 && strings.Contains("ugo", what)
			if !copies && strings.Trim(what, "rwxXst") != "" {
				return bad()
			}
			m.clauses = append(m.clauses, clauseOf(who, op, what))
		}
	}
	return m, nil
}

func clauseOf(who string, op byte, what string) modeClause {
	c := modeClause{who: who, asked: who != "", op: op, what: what}
	if who == "" || strings.Contains(who, "a") {
		c.who = "ugo"
	}
	return c
}

// apply changes a mode.
func (m modeChange) apply(old fs.FileMode, isDir bool) fs.FileMode {
	if m.exact {
		mode := goMode(m.number)
		if isDir && !m.all { // they say how names in it are made, and are seldom meant by a number
			mode |= old & (fs.ModeSetuid | fs.ModeSetgid)
		}
		return mode
	}
	mode := old & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	for _, c := range m.clauses {
		set, field := c.bits(mode, isDir)
		if !c.asked {
			set &^= umask()
		}
		switch c.op {
		case '+':
			mode |= set
		case '-':
			mode &^= set
		case '=':
			if isDir { // as with chmod(1), those bits of a directory go by numbers and - only
				field &^= fs.ModeSetuid | fs.ModeSetgid
			}
			mode = mode&^field | set
		}
	}
	return mode
}

// bits are those that a clause names, and all that it could name.
func (c *modeClause) bits(mode fs.FileMode, isDir bool) (set, field fs.FileMode) {
	for _, who := range c.who {
		shift := map[rune]int{'u': 6, 'g': 3, 'o': 0}[who]
		field |= 7 << shift
		switch who {
		case 'u':
			field |= fs.ModeSetuid
		case 'g':
			field |= fs.ModeSetgid
		case 'o':
			field |= fs.ModeSticky
		}
		for _, what := range c.what {
			set |= c.bit(what, who, shift, mode, isDir)
		}
	}
	return set, field
}

func (c *modeClause) bit(what, who rune, shift int, mode fs.FileMode, isDir bool) fs.FileMode {
	switch what {
	case 'r':
		return 4 << shift
	case 'w':
		return 2 << shift
	case 'x':
		return 1 << shift
	case 'X':
		if isDir || mode&0o111 != 0 {
			return 1 << shift
		}
	case 's':
		switch who {
		case 'u':
			return fs.ModeSetuid
		case 'g':
			return fs.ModeSetgid
		}
	case 't':
		if who == 'o' {
			return fs.ModeSticky
		}
	case 'u':
		return mode >> 6 & 7 << shift
	case 'g':
		return mode >> 3 & 7 << shift
	case 'o':
		return mode & 7 << shift
	}
	return 0
}

// goMode is 07777 in the words of package fs.
func goMode(bits uint32) fs.FileMode {
	return client.FileMode(&meta.Attr{Type: meta.Regular, Mode: bits})
}
