package admin

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-storage/sluice/internal/supervise"
)

// Host is a machine of the cluster: as the metadata service hears of it, and as it has joined.
type Host struct {
	Name     string    `json:"name"`
	State    string    `json:"state"` // up, slow, down, leaving, gone; empty: never heard of
	Roles    string    `json:"roles"`
	Version  string    `json:"version,omitempty"`
	Start    uint64    `json:"start"` // how often it was started
	Since    time.Time `json:"since,omitzero"`
	LastSeen time.Time `json:"last_seen,omitzero"`
	Expires  time.Time `json:"certificate_ends,omitzero"` // its latest one; zero: not known
}

// Client is a session of the metadata service.
type Client struct {
	Session  string    `json:"session"`
	Name     string    `json:"name"`
	Peer     string    `json:"peer,omitempty"` // whose certificate it has; empty: none
	Mount    string    `json:"mount,omitempty"`
	Version  string    `json:"version,omitempty"`
	Open     int       `json:"open"` // files
	Since    time.Time `json:"since"`
	LastSeen time.Time `json:"last_seen"`
}

// The words of states that matter here.
const (
	stateUp   = "up"
	stateDown = "down"
	stateGone = "gone"
)

// Down lists what should be there and is not: processes of this folder, the metadata service, I/O
// servers and hosts. What was told to leave is not missed, and neither is what was removed.
func (r *Report) Down() (list []string) {
	if r.Dir != "" && !r.Running {
		return []string{"the cluster in " + r.Dir + " is not running"}
	}
	for _, p := range r.Processes {
		if p.Status != supervise.Running {
			list = append(list, fmt.Sprintf("process %s is %s", p.Name, p.Status))
		}
	}
	if r.Meta == nil {
		list = append(list, "the metadata service does not answer")
	}
	for i := range r.Servers {
		if s := &r.Servers[i]; s.shownState() == stateDown || s.shownState() == stateSilent {
			list = append(list, fmt.Sprintf("iod%d is %s", s.ID, s.shownState()))
		}
	}
	for _, h := range r.Hosts {
		if h.State == stateDown {
			list = append(list, "host "+h.Name+" is down")
		}
	}
	return list
}

// stateSilent is an I/O server that the metadata service hears of, and that does not answer here.
const stateSilent = "silent"

// shownState is what is said of a server.
func (s *Server) shownState() string {
	switch {
	case s.State != "" && s.State != stateUp && s.State != "slow":
		return s.State
	case !s.Up:
		return stateDown
	case s.Problem != "":
		return stateSilent
	case s.State != "":
		return s.State
	}
	return stateUp
}

// Versions groups who runs which version of the program, the most common one first.
func (r *Report) Versions() (list []VersionUse) {
	note := func(version, who string) {
		if version == "" {
			return
		}
		i := slices.IndexFunc(list, func(u VersionUse) bool { return u.Version == version })
		if i < 0 {
			i, list = len(list), append(list, VersionUse{Version: version})
		}
		list[i].Who = append(list[i].Who, who)
	}
	if r.Meta != nil {
		note(r.Meta.Version, "meta")
	}
	for i := range r.Servers {
		if r.Servers[i].Up {
			note(r.Servers[i].Version, fmt.Sprintf("iod%d", r.Servers[i].ID))
		}
	}
	for _, h := range r.Hosts {
		if h.State == stateUp {
			note(h.Version, "host "+h.Name)
		}
	}
	for _, c := range r.Clients {
		note(c.Version, c.Name)
	}
	slices.SortStableFunc(list, func(a, b VersionUse) int { return len(b.Who) - len(a.Who) })
	return list
}

// VersionUse is a version of the program, and who runs it.
type VersionUse struct {
	Version string   `json:"version"`
	Who     []string `json:"who"`
}

// whoShown is how many names are told of those who run a version.
const whoShown = 8

func (u *VersionUse) text() string {
	who := u.Who[:min(len(u.Who), whoShown)]
	text := u.Version + ": " + strings.Join(who, ", ")
	if n := len(u.Who) - len(who); n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}
