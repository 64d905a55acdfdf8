package client

import "github.com/sluice-storage/sluice/meta"

// notAhead is a time that was set for a file, as far as it has come yet. A program may have set one
// that is centuries ahead: what is written nevertheless was written now.
func notAhead(t meta.Time) meta.Time {
	if now := meta.Now(); t.After(now) {
		return now
	}
	return t
}

// timesLocked brings the times of attributes up to what was written and may not have been told, as
// the service does when it is: a time goes forward, unless it is ahead of the clock.
func (n *inode) timesLocked(a *meta.Attr) {
	if n.mtime.After(a.Mtime) || a.Mtime.After(meta.Now()) {
		a.Mtime = n.mtime
	}
	a.Ctime = meta.Later(a.Ctime, n.mtime)
}
