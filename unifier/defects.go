package unifier

// defects are faults that tests plant to show that they would be found.
type defects struct {
	skipSettle  bool // a fill reads the backing although it lacks pending writes
	keepChanged bool // what was cached of a changed range stays
}

// plant plants a fault by its name. It tells whether there is such a one.
func (d *defects) plant(name string) bool {
	fault, ok := map[string]*bool{
		"skipSettle": &d.skipSettle, "keepChanged": &d.keepChanged,
	}[name]
	if ok {
		*fault = true
	}
	return ok
}
