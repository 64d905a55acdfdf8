package mount

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"golang.org/x/sys/unix"
)

// Who may do what is checked by the kernel, which knows all groups and capabilities of a process;
// so most requests are done as root, if the service believes this host's root (see as). Where FUSE
// does not tell what the kernel has found, and it matters, the process is looked at.

// as is on whose behalf a request is done. Where the service does not believe this host's root it
// checks what the kernel has checked, too, for the user himself. Requests of the kernel's own, and
// of nobody, are root's all the same: the service knows who has the file open.
func (b *bridge) as(ctx context.Context) meta.Cred {
	r, ok := ctx.(*request)
	if !ok || r.uid == 0 || !b.fs.Squashed() {
		return meta.Cred{}
	}
	return meta.Cred{UID: r.uid, GID: r.gid, Groups: b.users.groups(r.pid, r.uid, r.gid)}
}

// creator is on whose behalf inodes are made: the process will own them.
func (b *bridge) creator(h *fuse.InHeader) meta.Cred {
	c := meta.Cred{UID: h.Uid, GID: h.Gid}
	if c.UID != 0 && b.fs.Squashed() {
		c.Groups = b.users.groups(h.Pid, h.Uid, h.Gid)
	}
	return c
}

// users remembers the groups of processes for a moment.
type users struct {
	mu    sync.Mutex
	known map[process]grouped
}

type process struct{ pid, uid, gid uint32 }

type grouped struct {
	groups []uint32
	at     time.Time
}

// usersFresh is for how long the groups of a process are believed, usersMax of how many they are
// remembered.
const (
	usersFresh = time.Second
	usersMax   = 4096
)

func (u *users) groups(pid, uid, gid uint32) []uint32 {
	who, now := process{pid, uid, gid}, time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	if g, ok := u.known[who]; ok && now.Sub(g.at) < usersFresh {
		return g.groups
	}
	if u.known == nil || len(u.known) >= usersMax {
		u.known = map[process]grouped{}
	}
	g := grouped{groups(pid), now}
	u.known[who] = g
	return g.groups
}

// newFile describes what a process makes. The kernel has checked that it may, and has taken a
// set-group-id bit that it may not set; the mask it leaves to us, because it does not know default
// lists of directories.
func newFile(t meta.Type, mode, umask uint32) meta.NewFile {
	return meta.NewFile{Type: t, Mode: mode & 0o7777, Umask: umask & 0o777, Checked: true}
}

// groups reads the supplementary groups of a process.
func groups(pid uint32) []uint32 {
	var list []uint32
	for _, s := range strings.Fields(processStatus(pid)["Groups"]) {
		g, err := strconv.ParseUint(s, 10, 32)
		if err == nil && len(list) < meta.GroupsMax {
			list = append(list, uint32(g))
		}
	}
	return list
}

// capable tells whether a process has a capability that counts here: in the user namespace that
// this process is in. What is root in a namespace of its own is nobody outside.
func capable(pid uint32, capability int) bool {
	caps, err := strconv.ParseUint(processStatus(pid)["CapEff"], 16, 64)
	if err != nil || caps>>capability&1 == 0 {
		return false
	}
	its, err := os.Readlink("/proc/" + strconv.FormatUint(uint64(pid), 10) + "/ns/user")
	if err != nil {
		return false
	}
	ours, err := os.Readlink("/proc/self/ns/user")
	return err == nil && its == ours
}

// createAll makes and opens a file, or opens one that somebody else has just made: then the kernel
// has not seen it, and whether the process may open it depends on its groups and capabilities.
func (b *bridge) createAll(ctx context.Context, h *fuse.InHeader, dir meta.Ino, name string,
	nf meta.NewFile, flags meta.OpenFlags) (*client.File, error) {
	c := b.creator(h)
	f, err := b.fs.CreateIno(ctx, c, dir, name, nf, flags)
	if errs.KindOf(err) != errs.Access || c.UID == 0 {
		return f, err
	}
	if c.Groups = groups(h.Pid); len(c.Groups) > 0 {
		f, err = b.fs.CreateIno(ctx, c, dir, name, nf, flags)
	}
	if errs.KindOf(err) != errs.Access || !capable(h.Pid, unix.CAP_DAC_OVERRIDE) {
		return f, err
	}
	a, err := b.fs.Lookup(ctx, b.as(ctx), dir, name)
	if err != nil {
		return nil, err
	}
	return b.fs.OpenIno(ctx, b.as(ctx), a.Ino, flags&^meta.OpenExclusive)
}

// Bits of a mode that matter to privileges.
const (
	setUID = 0o4000
	setGID = 0o2000
	groupX = 0o0010
)

// dropPrivileges takes the set-user-id bit, and the set-group-id bit where it means execution,
// from a file whose content was changed by somebody who may not set them. The kernel says when;
// changes of the owner are the metadata service's business.
func (b *bridge) dropPrivileges(ctx context.Context, a *meta.Attr) error {
	mode := a.Mode &^ setUID
	if mode&groupX != 0 {
		mode &^= setGID
	}
	if a.Type != meta.Regular || mode == a.Mode {
		return nil
	}
	got, err := b.fs.SetAttr(ctx, b.as(ctx), a.Ino, meta.SetMode, meta.Attr{Mode: mode})
	if err == nil {
		*a = got
	}
	if errs.KindOf(err) == errs.Perm && b.fs.Squashed() {
		return nil // who does not own it: the service does it when it is told what was written
	}
	return err
}

// dropUnlessCapable is dropPrivileges where the kernel does not say whether it must be, as with
// fallocate(2).
func (b *bridge) dropUnlessCapable(ctx context.Context, h *fuse.InHeader, a *meta.Attr) error {
	if a.Mode&(setUID|setGID) == 0 || capable(h.Pid, unix.CAP_FSETID) {
		return nil
	}
	return b.dropPrivileges(ctx, a)
}

// trustedPrefix is of attributes that only administrators see.
const trustedPrefix = "trusted."

// visible leaves out names that a process must not see. (The kernel keeps it from reading them.)
func visible(names []string, pid uint32) []string {
	asked, admin := false, false
	left := names[:0]
	for _, n := range names {
		if strings.HasPrefix(n, trustedPrefix) {
			if !asked {
				asked, admin = true, capable(pid, unix.CAP_SYS_ADMIN)
			}
			if !admin {
				continue
			}
		}
		left = append(left, n)
	}
	return left
}
