package remote

// Lives calls fn with the verifier of each server that is known, and that has everything of what it
// acknowledged under it: what was acknowledged in an earlier life has been sent again. fn must not
// block, and must not call the Remote.
func (r *Remote) Lives(fn func(server uint32, verifier uint64)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.servers.Load()
	if all == nil {
		return
	}
	for id, srv := range *all {
		if srv.known && srv.stale.Load() == 0 {
			fn(id, srv.verifier.Load())
		}
	}
}

// LifeChanges counts the changes of what Lives tells, at least.
func (r *Remote) LifeChanges() uint64 { return r.lives.Load() }

// Kept calls fn with the files of which volatile changes are kept, some more than once: all that
// was acknowledged of other files is durable. fn must not block, and must not call the Remote.
func (r *Remote) Kept(fn func(file uint64)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.servers.Load()
	if all == nil {
		return
	}
	for _, srv := range *all {
		for id, o := range srv.objects {
			if o.count > 0 || o.lost != nil {
				fn(id.File)
			}
		}
	}
}
