package mem

// Operation is what several requests are parts of. The buffers are the caller's, and lent until the
// last of the requests is over.
type Operation struct {
	// Bufs are the buffers of the operation, in the order of the windows that lie in them.
	Bufs [][]byte

	// Hinted: Bufs are allocations that the caller has named, of which the data is many parts. They
	// are registered whole at once, also where it would cost less to copy this one operation's data.
	Hinted bool

	// Method is how data in several pieces is moved, and Why, for people. Default Auto.
	Method Method
	Why    string
}

// Method is how data that lies in pieces is moved.
type Method uint8

// The methods.
const (
	Auto   Method = iota // as measurements say
	Gather               // piece by piece, each between its own memory and the peer's
	Pack                 // copied together in one buffer, which moves as one piece
)

func (m Method) String() string {
	switch m {
	case Auto:
		return "auto"
	case Gather:
		return "gather"
	case Pack:
		return "pack"
	}
	return "unknown"
}

// Moved tells how the data of one request was moved.
type Moved struct {
	Provider string
	Method   Method // Gather or Pack
	Why      string
}
