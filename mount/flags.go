package mount

import (
	"maps"
	"slices"
	"strings"

	"github.com/sluice-storage/sluice/errs"
	"golang.org/x/sys/unix"
)

// flagRule is what an option of mount(8) that all file systems have does to the flags of mount(2).
type flagRule struct{ set, clear uintptr }

// flagRules are those that make sense here. What needs a decision of the file system is not among
// them. Who mounts without root gives them to fusermount3, which has a say of its own.
var flagRules = map[string]flagRule{
	"ro": {set: unix.MS_RDONLY}, "rw": {clear: unix.MS_RDONLY},
	"suid": {clear: unix.MS_NOSUID}, "nosuid": {set: unix.MS_NOSUID},
	"dev": {clear: unix.MS_NODEV}, "nodev": {set: unix.MS_NODEV},
	"exec": {clear: unix.MS_NOEXEC}, "noexec": {set: unix.MS_NOEXEC},
	"sync": {set: unix.MS_SYNCHRONOUS}, "async": {clear: unix.MS_SYNCHRONOUS},
	"dirsync": {set: unix.MS_DIRSYNC},
	"atime":   {clear: unix.MS_NOATIME}, "noatime": {set: unix.MS_NOATIME},
	"diratime": {clear: unix.MS_NODIRATIME}, "nodiratime": {set: unix.MS_NODIRATIME},
	"relatime": {set: unix.MS_RELATIME}, "norelatime": {clear: unix.MS_RELATIME},
	"strictatime": {set: unix.MS_STRICTATIME}, "nostrictatime": {clear: unix.MS_STRICTATIME},
	"symfollow": {clear: unix.MS_NOSYMFOLLOW}, "nosymfollow": {set: unix.MS_NOSYMFOLLOW},
}

// flagsDefault hold unless an option says otherwise: whoever can be root on one of the clients can
// make devices and set-user-id programs that others would obey.
const flagsDefault = unix.MS_NOSUID | unix.MS_NODEV

// IsFlag tells whether an option of mount(8) is one that Options.Flags takes.
func IsFlag(option string) bool {
	_, ok := flagRules[option]
	return ok
}

// Flags lists the options of mount(8) that Options.Flags takes.
func Flags() []string { return slices.Sorted(maps.Keys(flagRules)) }

// flagsOf is what options mean to mount(2); later ones win.
func flagsOf(options []string) (uintptr, error) {
	flags := uintptr(flagsDefault)
	for _, o := range options {
		r, ok := flagRules[o]
		if !ok {
			return 0, errs.Newf(errs.Invalid, "mount.Options", "", "unknown flag %q", o)
		}
		flags = flags&^r.clear | r.set
	}
	return flags, nil
}

// fuseFlags is what go-fuse is told of them. It takes no flags at all for the default ones, and
// knows some by their names only; fusermount3 knows all of them by their names.
func fuseFlags(direct bool, flags uintptr, options []string) (uintptr, []string) {
	if !direct {
		return flags, options
	}
	var names []string
	if flags&unix.MS_NOSUID == 0 {
		names = append(names, "suid")
	}
	if flags&unix.MS_NODEV == 0 {
		names = append(names, "dev")
	}
	return flags, names
}

// Remount changes flags of a mount at dir, as mount -o remount does: those that are not mentioned
// stay.
func Remount(dir string, options []string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return errs.Wrap("remount", dir, err)
	}
	if _, err := flagsOf(options); err != nil {
		return err
	}
	flags := stated(st.Flags)
	for _, o := range options {
		r := flagRules[o]
		flags = flags&^r.clear | r.set
	}
	err := unix.Mount("", dir, "", unix.MS_REMOUNT|flags, "")
	if err != nil {
		return errs.Newf(errs.KindOf(err), "remount", dir, "%s: %w", strings.Join(options, ","), err)
	}
	return nil
}

// stated translates the flags of statfs(2), whose lower bits are those of mount(2).
func stated(flags int64) uintptr {
	const same = unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC |
		unix.ST_SYNCHRONOUS | unix.ST_NOATIME | unix.ST_NODIRATIME
	out := uintptr(flags) & same
	if flags&unix.ST_RELATIME != 0 {
		out |= unix.MS_RELATIME
	}
	if flags&stNoSymFollow != 0 {
		out |= unix.MS_NOSYMFOLLOW
	}
	return out
}

const stNoSymFollow = 0x2000
