package nbd

// Extras are the optional one-method interfaces of an export, each nil where the export does not
// have it. Whoever needs them asks ExtrasOf, once, when the export is opened.
type Extras struct {
	Trimmer   Trimmer
	Zeroer    Zeroer
	Mapper    Mapper
	Slicer    Slicer
	Streamer  Streamer
	Starver   Starver
	NowReader NowReader
	Describer Describer
	Sizer     Sizer
	Unaligner Unaligner
	Instant   Instant
	Fixed     Fixed
	Contexter Contexter
	Cacher    Cacher
	Ender     Ender
	Batcher   Batcher
}

// Wrapper is an Export that stands on others and knows only when it is made which extras it has, as
// filters do: what its Extras returns counts, and not the methods of its type.
type Wrapper interface {
	Extras() Extras
}

// ExtrasOf is what an export has besides the five methods.
func ExtrasOf(exp Export) (e Extras) {
	if w, ok := exp.(Wrapper); ok {
		return w.Extras()
	}
	e.Trimmer, _ = exp.(Trimmer)
	e.Zeroer, _ = exp.(Zeroer)
	e.Mapper, _ = exp.(Mapper)
	e.Slicer, _ = exp.(Slicer)
	e.Streamer, _ = exp.(Streamer)
	e.Starver, _ = exp.(Starver)
	e.NowReader, _ = exp.(NowReader)
	e.Describer, _ = exp.(Describer)
	e.Sizer, _ = exp.(Sizer)
	e.Unaligner, _ = exp.(Unaligner)
	e.Instant, _ = exp.(Instant)
	e.Fixed, _ = exp.(Fixed)
	e.Contexter, _ = exp.(Contexter)
	e.Cacher, _ = exp.(Cacher)
	e.Ender, _ = exp.(Ender)
	if b, ok := exp.(Batcher); ok && b.Batches() {
		e.Batcher = b
	}
	return e
}
