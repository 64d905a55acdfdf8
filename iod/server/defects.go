package server

// defects are faults that tests plant, to see that they are found. None is set in a server that
// serves anybody.
type defects struct {
	unbounded bool // gates let everybody in
	unfair    bool // a client may take all of a gate
	starve    bool // waiting does not make a request more urgent
	trust     bool // checksums of writes are not compared
	forget    bool // writes are not numbered at the store
	stale     bool // what is cached of a directly written range is not dropped
	unsettled bool // a direct read does not wait for what the cache has not written yet
}
