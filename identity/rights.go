package identity

import (
	"path"
	"slices"
	"strings"

	"github.com/sluice-storage/sluice/errs"
)

// Roles are what a host may do in a cluster.
type Roles uint8

// The roles. Values are stored: append, never renumber.
const (
	RoleKeeper  Roles = 1 << iota // keeps a copy of the metadata
	RoleMeta                      // answers for names
	RoleIod                       // serves data from its disks
	RoleGateway                   // exports to others: block devices, mounts
	rolesEnd

	RolesAll = rolesEnd - 1
)

var roleNames = []string{"keeper", "meta", "iod", "gateway"}

// String is the roles' words, with commas.
func (r Roles) String() string { return strings.Join(r.words(), ",") }

func (r Roles) words() []string {
	words := []string{}
	for i, name := range roleNames {
		if r&(1<<i) != 0 {
			words = append(words, name)
		}
	}
	return words
}

// ParseRoles reads words with commas between them.
func ParseRoles(text string) (r Roles, err error) {
	for _, word := range strings.Split(text, ",") {
		i := slices.Index(roleNames, strings.TrimSpace(word))
		if i < 0 {
			return 0, errs.Newf(errs.Invalid, "identity", "", "%.64q is no role: choose of %s", word,
				strings.Join(roleNames, ", "))
		}
		r |= 1 << i
	}
	return r, nil
}

// MarshalText makes JSON show the words.
func (r Roles) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is the reverse of MarshalText.
func (r *Roles) UnmarshalText(b []byte) (err error) {
	if *r = 0; len(b) > 0 {
		*r, err = ParseRoles(string(b))
	}
	return err
}

// Squash says which users a client may speak for.
type Squash uint8

// The ways. Values are stored: append, never renumber.
const (
	SquashRoot Squash = iota // root becomes Nobody, others are believed
	SquashAll                // everybody becomes Nobody
	SquashNone               // all are believed: for hosts that are trusted like those of the cluster
	squashEnd
)

// Nobody is the user and the group that those become who are not believed.
const Nobody = 65534

var squashNames = []string{"root", "all", "none"}

// String is the way's word.
func (s Squash) String() string {
	if s < squashEnd {
		return squashNames[s]
	}
	return "unknown"
}

// ParseSquash reads what String writes.
func ParseSquash(text string) (Squash, error) {
	i := slices.Index(squashNames, text)
	if i < 0 {
		return 0, errs.Newf(errs.Invalid, "identity", "", "%.64q is no way to squash: choose of %s", text,
			strings.Join(squashNames, ", "))
	}
	return Squash(i), nil
}

// MarshalText makes JSON show the word.
func (s Squash) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is the reverse of MarshalText.
func (s *Squash) UnmarshalText(b []byte) (err error) {
	*s, err = ParseSquash(string(b))
	return err
}

// Limits of Rights.
const (
	PathMax    = 4 << 10 // bytes of Path
	VolumesMax = 64
	volumeMax  = 255 // bytes of a volume's name
)

// AllVolumes stands for every volume, those to come included.
const AllVolumes = "*"

// Rights are what a client may do. The metadata service holds every request against them; the uids
// that a client claims are believed within them only. The zero value is no good: see Check.
type Rights struct {
	Path     string   `json:"path"`              // the subtree that is its root: absolute and clean
	ReadOnly bool     `json:"read_only"`         // it changes nothing, neither files nor volumes
	Squash   Squash   `json:"squash"`            // whom it may speak for
	Volumes  []string `json:"volumes,omitempty"` // those that it may open, by name; AllVolumes
}

// Check refuses rights that make no sense.
func (r *Rights) Check() error {
	bad := func(format string, args ...any) error {
		return errs.Newf(errs.Invalid, "identity.Rights", "", format, args...)
	}
	switch {
	case !path.IsAbs(r.Path) || path.Clean(r.Path) != r.Path || strings.ContainsRune(r.Path, 0):
		return bad("%.200q is no path of a directory: begin it with a slash, without a slash at "+
			"its end", r.Path)
	case len(r.Path) > PathMax:
		return bad("a path of %d bytes, at most %d", len(r.Path), PathMax)
	case r.Squash >= squashEnd:
		return bad("no way to squash: %d", r.Squash)
	case len(r.Volumes) > VolumesMax:
		return bad("%d volumes, at most %d", len(r.Volumes), VolumesMax)
	}
	for i, v := range r.Volumes {
		if v == "" || len(v) > volumeMax || strings.ContainsAny(v, "/\x00") {
			return bad("%.80q is no name of a volume", v)
		}
		if slices.Contains(r.Volumes[:i], v) {
			return bad("volume %q is named twice", v)
		}
	}
	return nil
}

// Volume tells whether a volume may be opened.
func (r *Rights) Volume(name string) bool {
	return slices.Contains(r.Volumes, name) || slices.Contains(r.Volumes, AllVolumes)
}

// Believe is who a caller is taken for that says it is uid, gid and groups. groups may be
// returned, and is not changed.
func (r *Rights) Believe(uid, gid uint32, groups []uint32) (uint32, uint32, []uint32) {
	switch {
	case r.Squash == SquashNone:
		return uid, gid, groups
	case r.Squash == SquashAll || uid == 0:
		return Nobody, Nobody, nil
	}
	if gid == 0 { // the group of root opens doors too
		gid = Nobody
	}
	if slices.Contains(groups, 0) {
		groups = slices.DeleteFunc(slices.Clone(groups), func(g uint32) bool { return g == 0 })
	}
	return uid, gid, groups
}
