// Command grpcpeer holds the message layer of sluice against gRPC-Go, over loopback TCP between two
// processes, in turns, beside plain Go TCP. It is a module of its own, so that sluice does not
// depend on gRPC. Run it in its folder:
//
//	go run .            # a quarter of a minute
//	go run . -full      # steadier
//
// gRPC has what makes it fast: a codec that does nothing (messages are bytes, without protobuf),
// windows and buffers of megabytes, and no TLS. Bulk data is measured as unary calls with 1 MiB of
// reply, as many under way as sluice has requests, and as a stream of messages of 1 MiB; the better
// of the two counts.
//
// It does not test anything: package bench/net and its tests do.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"

	"github.com/sluice-storage/sluice/bench"
	benchnet "github.com/sluice-storage/sluice/bench/net"
	"github.com/sluice-storage/sluice/bench/partner"
	"github.com/sluice-storage/sluice/bench/plain"
	"github.com/sluice-storage/sluice/fabric/tcp"
)

func main() {
	full := flag.Bool("full", false, "measure longer")
	asJSON := flag.Bool("json", false, "print rows as JSON")
	serve := flag.Bool("serve", false, "be the other process")
	flag.Parse()
	err := error(nil)
	if *serve {
		err = servePeer()
	} else {
		err = measure(*full, *asJSON)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "grpcpeer:", err)
		os.Exit(1)
	}
}

// addrs is where the other process serves what.
type addrs struct{ Control, Plain, GRPC string }

// servePeer serves until its standard input ends.
func servePeer() error {
	var a addrs
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, s := range []struct {
		addr  *string
		serve func(net.Listener)
	}{
		{&a.Control, func(ln net.Listener) {
			partner.Serve(ctx, ln, func(err error) { fmt.Fprintln(os.Stderr, err) }, benchnet.Jobs(open))
		}},
		{&a.Plain, plain.Serve},
		{&a.GRPC, serveGRPC},
	} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer ln.Close()
		*s.addr = ln.Addr().String()
		go s.serve(ln)
	}
	if err := json.NewEncoder(os.Stdout).Encode(a); err != nil {
		return err
	}
	_, err := bufio.NewReader(os.Stdin).ReadByte()
	if err == nil {
		return fmt.Errorf("nobody should write here")
	}
	return nil
}

// open opens sluice's tcp.
func open(provider string) (partner.Domain, error) {
	d, err := tcp.Open(tcp.Options{})
	return partner.Domain{Domain: d, Listen: "127.0.0.1:0"}, err
}

// startPeer runs this program as the other process.
func startPeer() (a addrs, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return a, nil, err
	}
	cmd := exec.Command(self, "-serve")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return a, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return a, nil, err
	}
	if err := cmd.Start(); err != nil {
		return a, nil, err
	}
	stop = func() {
		_ = in.Close()
		_ = cmd.Wait() // how it ended is of no interest
	}
	if err := json.NewDecoder(out).Decode(&a); err != nil {
		stop()
		return a, nil, err
	}
	return a, stop, nil
}

// measure puts gRPC beside sluice's cases.
func measure(full, asJSON bool) error {
	a, stop, err := startPeer()
	if err != nil {
		return err
	}
	defer stop()
	n := &benchnet.Bench{Providers: []string{"tcp"}, Open: open, Quick: true,
		Peer: partner.Info{Control: a.Control, Plain: a.Plain}}
	defer n.Close()
	cases, err := bench.Choose(n.Cases(), []string{"rtt-8", "bulk-1m"})
	if err != nil {
		return err
	}
	conn, err := dialGRPC(a.GRPC)
	if err != nil {
		return err
	}
	defer conn.Close()
	for i := range cases {
		c := &cases[i]
		if c.Metric == bench.Latency {
			c.Add(pings(conn))
		} else {
			c.Add(unary(conn, int(c.Size), c.Depth), stream(conn, int(c.Size)))
		}
	}
	b := bench.Budget{Rounds: 5, Round: 300 * time.Millisecond}
	if full {
		b = bench.Budget{Rounds: 11, Round: time.Second}
	}
	rows, err := bench.RunAll(context.Background(), b, cases)
	if err != nil {
		return err
	}
	if asJSON {
		return bench.WriteJSON(os.Stdout, rows)
	}
	if err := bench.WriteTable(os.Stdout, rows); err != nil {
		return err
	}
	return judge(rows)
}

// judge prints what was asked for: a third of the latency, twice the bulk rate.
func judge(rows []bench.Row) error {
	value := func(name, provider string) float64 {
		for _, r := range rows {
			if r.Case == name && r.Provider == provider {
				return r.Value
			}
		}
		return 0
	}
	rtt := value("rtt-8", "tcp") / value("rtt-8", unaryName)
	best := max(value("bulk-1m", unaryName), value("bulk-1m", streamName))
	rate := value("bulk-1m", "tcp") / best
	_, err := fmt.Printf("\nsluice has %.2f of gRPC's latency (asked: at most 0.33) and %.2f "+
		"times its bulk rate (asked: at least 2)\n", rtt, rate)
	return err
}
