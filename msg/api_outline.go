package msg

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/wire"
)

func sendDepth(credits int) int { return 2*credits + 300 }

var errOutline = errs.New(errs.Unsupported, "msg", "", nil)

// Node is one process's end of the message layer.
type Node struct{}

// NewNode makes a node.
func NewNode(o Options) (*Node, error) { return nil, errOutline }

// Close closes all.
func (n *Node) Close() error { return nil }

// Dial connects.
func (n *Node) Dial(ctx context.Context, addr string) (*Conn, error) { return nil, errOutline }

// Serve listens.
func (n *Node) Serve(addr string, h Handler, o ServeOptions) (*Server, error) { return nil, errOutline }

// Conn is the client's end.
type Conn struct{}

// Call calls.
func (c *Conn) Call(ctx context.Context, req *Request, rep *Reply) error { return errOutline }

// Close closes.
func (c *Conn) Close() {}

// Done is closed when the connection is dead.
func (c *Conn) Done() <-chan struct{} { return nil }

// Err says why the connection is dead.
func (c *Conn) Err() error { return nil }

// Peer is the hello of the server.
func (c *Conn) Peer() fabric.Hello { return fabric.Hello{} }

// MaxDescription is the limit.
func (c *Conn) MaxDescription() int { return 0 }

// Server serves.
type Server struct{}

// ServerStats are a server's counters.
type ServerStats struct {
	Conns, Running, Queued  int
	Calls, Failed, Canceled uint64
	BytesIn, BytesOut       uint64
}

// Addr is where the server listens.
func (s *Server) Addr() string { return "" }

// Close drains.
func (s *Server) Close(ctx context.Context) error { return nil }

// Stats counts.
func (s *Server) Stats() ServerStats { return ServerStats{} }

// Call is the server's side of a request.
type Call struct{}

// Header is the request's.
func (c *Call) Header() *wire.Header { return nil }

// Body is the request's body, valid until Reply or Fail.
func (c *Call) Body() []byte { return nil }

// OutLen is the length of the request's data.
func (c *Call) OutLen() int64 { return 0 }

// InLen is the room for reply data.
func (c *Call) InLen() int64 { return 0 }

// Pull fetches request data.
func (c *Call) Pull(ctx context.Context, off int64, dst []fabric.Sge) error { return errOutline }

// Push delivers reply data.
func (c *Call) Push(ctx context.Context, off int64, src []fabric.Sge) error { return errOutline }

// SetStamp sets the stamp of the reply.
func (c *Call) SetStamp(s wire.Stamp) {}

// Reply answers.
func (c *Call) Reply(body []byte, inLen int64) error { return errOutline }

// Fail answers with an error.
func (c *Call) Fail(err error) error { return errOutline }

// PeerIdentity is who the client says it is.
func (c *Call) PeerIdentity() uint64 { return 0 }

// MaxReply is the largest body of a reply.
func (c *Call) MaxReply() int { return 0 }

// Pool keeps connections.
type Pool struct{}

// Resolve finds the address of a peer.
type Resolve func(ctx context.Context, id uint32) (addr string, err error)

// NewPool makes a pool.
func NewPool(n *Node, resolve Resolve) *Pool { return nil }

// Get returns a live connection.
func (p *Pool) Get(ctx context.Context, id uint32) (*Conn, error) { return nil, errOutline }

// Drop forgets conn.
func (p *Pool) Drop(id uint32, conn *Conn) {}

// Close closes all.
func (p *Pool) Close() error { return nil }

// Backoff says how long to wait between attempts.
type Backoff struct{ First, Max time.Duration }

// Retry repeats fn.
func Retry(ctx context.Context, b Backoff, fn func(ctx context.Context) error) error { return fn(ctx) }
