package writeback

// defects are faults that tests plant to show that they would be found.
type defects struct {
	skipVerify bool // wrong sums are taken for right ones
	dropStamps bool // merged writes remember the first request only
	anyOrder   bool // the youngest pending write of an object goes first
	loseSlots  bool // a slot's later request reaches the backing before its earlier one
}

// plant plants a fault by its name. It tells whether there is such a one.
func (d *defects) plant(name string) bool {
	fault, ok := map[string]*bool{
		"skipVerify": &d.skipVerify, "dropStamps": &d.dropStamps, "anyOrder": &d.anyOrder,
		"loseSlots": &d.loseSlots,
	}[name]
	if ok {
		*fault = true
	}
	return ok
}
