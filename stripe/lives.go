package stripe

// LifeBits is how many bits of a life's number count those between one opening of a store and the
// next. Each of them takes a write that failed; 16 million are more than a process sees.
const LifeBits = 24

// Lives are the last two lives in which an object was changed, 0 for none: the present one, perhaps,
// and the last one before that. The order in which changes are noted does not matter, nor how often.
type Lives struct{ Last, Before uint64 }

// Note adds a life.
func (l *Lives) Note(life uint64) {
	switch {
	case life > l.Last:
		l.Last, l.Before = life, l.Last
	case life < l.Last:
		l.Before = max(l.Before, life)
	}
}

// Until is the last one before a life that is not over.
func (l Lives) Until(now uint64) uint64 {
	if l.Last >= now {
		return l.Before
	}
	return l.Last
}
