package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/meta"
)

// owners tells the names of users and groups of this host, each looked for once. Numbers without a
// name stay numbers.
type owners struct {
	numeric bool
	users   map[uint32]string
	groups  map[uint32]string
}

func newOwners(numeric bool) *owners {
	return &owners{numeric: numeric, users: map[uint32]string{}, groups: map[uint32]string{}}
}

func (o *owners) user(id uint32) string {
	return o.name(o.users, id, func(text string) (string, error) {
		u, err := user.LookupId(text)
		if err != nil {
			return "", err
		}
		return u.Username, nil
	})
}

func (o *owners) group(id uint32) string {
	return o.name(o.groups, id, func(text string) (string, error) {
		g, err := user.LookupGroupId(text)
		if err != nil {
			return "", err
		}
		return g.Name, nil
	})
}

func (o *owners) name(known map[uint32]string, id uint32,
	find func(string) (string, error)) string {
	if name, ok := known[id]; ok {
		return name
	}
	text := strconv.FormatUint(uint64(id), 10)
	if !o.numeric {
		if name, err := find(text); err == nil && name != "" {
			text = name
		}
	}
	known[id] = text
	return text
}

// parseUser reads a user's name or number.
func parseUser(text string) (int, error) {
	if u, err := user.Lookup(text); err == nil {
		return strconv.Atoi(u.Uid)
	}
	return parseID(text, "user")
}

// parseGroup reads a group's name or number.
func parseGroup(text string) (int, error) {
	if g, err := user.LookupGroup(text); err == nil {
		return strconv.Atoi(g.Gid)
	}
	return parseID(text, "group")
}

func parseID(text, what string) (int, error) {
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil || id == 1<<32-1 {
		return 0, refuse(fmt.Sprintf("there is no %s %q on this host", what, text),
			"Write a name that this host knows, or a number")
	}
	return int(id), nil
}

// umask is what the user keeps new files from having, looked up once. It is read, not set, because
// threads of this process share it; where it cannot be read it is the usual one.
var umask = sync.OnceValue(func() fs.FileMode {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0o022
	}
	for _, line := range strings.Split(string(text), "\n") {
		if value, ok := strings.CutPrefix(line, "Umask:"); ok {
			if m, err := strconv.ParseUint(strings.TrimSpace(value), 8, 9); err == nil {
				return fs.FileMode(m)
			}
		}
	}
	return 0o022
})

// lsMode is type and mode as ls(1) shows them.
func lsMode(a *meta.Attr) string {
	text := []byte(typeLetter(a.Type) + client.FileMode(&meta.Attr{Mode: a.Mode & 0o777}).String()[1:])
	for _, s := range []struct {
		bit       uint32
		at        int
		with, not byte // x is set besides, or not
	}{{0o4000, 3, 's', 'S'}, {0o2000, 6, 's', 'S'}, {0o1000, 9, 't', 'T'}} {
		if a.Mode&s.bit == 0 {
			continue
		}
		if text[s.at] == 'x' {
			text[s.at] = s.with
		} else {
			text[s.at] = s.not
		}
	}
	return string(text)
}

func typeLetter(t meta.Type) string {
	switch t {
	case meta.Directory:
		return "d"
	case meta.Symlink:
		return "l"
	case meta.Fifo:
		return "p"
	case meta.Socket:
		return "s"
	case meta.CharDevice:
		return "c"
	case meta.BlockDevice:
		return "b"
	}
	return "-"
}

// permText is the mode as chmod(1) takes it.
func permText(a *meta.Attr) string { return fmt.Sprintf("%04o", a.Mode&0o7777) }
