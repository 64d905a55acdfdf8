package client

import (
	"github.com/sluice-storage/sluice/internal/version"
	"github.com/sluice-storage/sluice/meta"
)

// introduce adds to what is said to the service who this client is, once in a session and in a life
// of the service, and which version of the cluster's map it knows, so that it is told of a later
// one at once.
func (fs *FS) introduce(l *meta.Listening) {
	fs.leases.mu.Lock()
	anew := fs.leases.session == l.Session && fs.leases.told != fs.leases.life
	fs.leases.mu.Unlock()
	if anew {
		l.About = &meta.About{Version: version.String(), Mount: fs.opts.Mount}
	}
	if d := fs.places.Load(); d != nil {
		l.Map = d.Version()
	}
}

// introduced takes note of the answer. A service that was restarted on an older store counts
// versions of the map anew.
func (fs *FS) introduced(l *meta.Listening, h *meta.Heard) {
	fs.leases.mu.Lock()
	restarted := fs.leases.session == l.Session && h.Life > fs.leases.life
	if l.About != nil && fs.leases.session == l.Session {
		fs.leases.told = h.Life
	}
	fs.leases.mu.Unlock()
	if d := fs.places.Load(); d != nil {
		if restarted {
			d.Restarted()
		}
		d.Heard(h.Map)
	}
}
