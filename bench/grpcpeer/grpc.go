package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"

	"github.com/sluice-storage/sluice/bench"
	benchnet "github.com/sluice-storage/sluice/bench/net"
	"github.com/sluice-storage/sluice/bench/plain"
)

const (
	unaryName  = "gRPC"
	streamName = "gRPC, stream"

	service = "bench.Peer"
	echo    = "/" + service + "/Echo"
	give    = "/" + service + "/Give"
	flow    = "/" + service + "/Flow"

	window  = 16 << 20
	buffers = 1 << 20
	giveMax = 64 << 20
)

// raw is a codec for messages that are bytes: *[]byte, which is filled as far as it goes.
type raw struct{}

func (raw) Name() string { return "raw" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("raw: %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("raw: %T", v)
	}
	n := data.Len()
	if cap(*b) < n {
		*b = make([]byte, n)
	}
	*b = (*b)[:n]
	data.CopyTo(*b)
	return nil
}

// server answers.
type server struct{ data []byte }

func serveGRPC(ln net.Listener) {
	s := &server{data: make([]byte, giveMax)}
	for i := range s.data {
		s.data[i] = byte(i) // memory that was never written is one page of zeroes
	}
	g := grpc.NewServer(
		grpc.ForceServerCodecV2(raw{}), grpc.MaxRecvMsgSize(giveMax), grpc.MaxSendMsgSize(giveMax),
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window),
		grpc.ReadBufferSize(buffers), grpc.WriteBufferSize(buffers),
	)
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: service, HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			{MethodName: "Echo", Handler: s.echo}, {MethodName: "Give", Handler: s.give},
		},
		Streams: []grpc.StreamDesc{{StreamName: "Flow", Handler: s.flow, ServerStreams: true}},
	}, s)
	_ = g.Serve(ln) // it ends with the listener
}

func (s *server) echo(_ any, _ context.Context, dec func(any) error,
	_ grpc.UnaryServerInterceptor) (any, error) {
	in := make([]byte, 0, 64)
	err := dec(&in)
	return &in, err
}

// asked is how many bytes a request wants.
func (s *server) asked(dec func(any) error) ([]byte, error) {
	in := make([]byte, 0, 64)
	if err := dec(&in); err != nil {
		return nil, err
	}
	if len(in) != 8 {
		return nil, fmt.Errorf("a request of %d bytes", len(in))
	}
	return s.data[:min(binary.BigEndian.Uint64(in), giveMax)], nil
}

func (s *server) give(_ any, _ context.Context, dec func(any) error,
	_ grpc.UnaryServerInterceptor) (any, error) {
	out, err := s.asked(dec)
	return &out, err
}

// flow sends until the client has enough.
func (s *server) flow(_ any, stream grpc.ServerStream) error {
	out, err := s.asked(stream.RecvMsg)
	for err == nil {
		err = stream.SendMsg(&out)
	}
	return err
}

func dialGRPC(addr string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{}), grpc.MaxCallRecvMsgSize(giveMax)),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		grpc.WithReadBufferSize(buffers), grpc.WithWriteBufferSize(buffers),
	)
}

// pings is a unary call with 8 bytes and its answer.
func pings(conn *grpc.ClientConn) bench.Contender {
	return bench.Contender{Provider: unaryName, Ceiling: plain.TCP, Depth: 1,
		Measure: func(ctx context.Context, d time.Duration) (bench.Result, error) {
			in, out := make([]byte, benchnet.PingBytes), make([]byte, benchnet.PingBytes)
			return bench.Repeat(ctx, d, 0, func() error {
				return conn.Invoke(ctx, echo, &in, &out)
			})
		}}
}

// unary is calls with size bytes of reply.
func unary(conn *grpc.ClientConn, size, depth int) bench.Contender {
	ask := binary.BigEndian.AppendUint64(nil, uint64(size))
	return bench.Contender{Provider: unaryName, Ceiling: plain.TCP, Depth: depth,
		Measure: func(ctx context.Context, d time.Duration) (bench.Result, error) {
			bufs := make([][]byte, depth)
			for i := range bufs {
				bufs[i] = make([]byte, size)
			}
			return bench.Load{Depth: depth, Size: size, Op: func(worker, _ int) error {
				return conn.Invoke(ctx, give, &ask, &bufs[worker])
			}}.Run(ctx, d)
		}}
}

// stream is one call whose answer is messages of size bytes without end.
func stream(conn *grpc.ClientConn, size int) bench.Contender {
	ask := binary.BigEndian.AppendUint64(nil, uint64(size))
	return bench.Contender{Provider: streamName, Ceiling: plain.TCP, Depth: 1,
		Measure: func(ctx context.Context, d time.Duration) (bench.Result, error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, flow)
			if err == nil {
				err = s.SendMsg(&ask)
			}
			if err == nil {
				err = s.CloseSend()
			}
			if err != nil {
				return bench.Result{}, err
			}
			buf := make([]byte, size)
			return bench.Load{Depth: 1, Size: size, Op: func(int, int) error {
				err := s.RecvMsg(&buf)
				if err == io.EOF {
					err = io.ErrUnexpectedEOF
				}
				return err
			}}.Run(ctx, d)
		}}
}
