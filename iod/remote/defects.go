package remote

// Defects are faults that tests plant to show that they would be found. The zero value has none;
// nothing but tests sets them.
type Defects struct {
	IgnoreVerifier bool // a changed verifier is not noticed
	ForgetOne      bool // every seventh kept write is not sent again
	OutOfOrder     bool // kept writes of an object are sent again in another order
	NewNumbers     bool // what is sent again gets a number of its own
	HideCut        bool // what comes too late behind a truncation is not told
	ShareSlots     bool // a slot with kept writes is lent to durable ones too
	SkipSums       bool // what arrives is not compared with its sums
}
