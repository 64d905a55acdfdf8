package server

// Defects are faults that tests plant to show that they would be found. The zero value has none; no
// server that serves anybody sets one.
type Defects struct {
	Unbounded bool // gates let everybody in
	Unfair    bool // a client may take all of a gate
	Starve    bool // waiting does not make a request more urgent
	Trust     bool // checksums of writes are not compared
	Forget    bool // writes are not numbered at the store
	Stale     bool // what is cached of a range that was written directly is not dropped
	Unsettled bool // a direct read does not wait for what the cache has not written yet
	NoFence   bool // a fence is the store's business alone
	KeepMark  bool // a server that writes back has the same verifier after every start
	SwapSums  bool // the sums of a read are those of its chunks in another order
}
