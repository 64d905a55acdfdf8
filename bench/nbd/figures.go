package nbd

import (
	"fmt"
	"strings"

	"github.com/sluice-storage/sluice/bench"
)

// The servers of sluice in scenes of their own.
const (
	Cached   = "cached"   // a local file in mode cached, beside volumes
	Plain    = "plain"    // a request is answered when all of it is read
	Multiple = "multiple" // its chunks leave as the members deliver them
)

// Volume is the name of a volume over so many servers.
func Volume(servers int) string { return fmt.Sprintf("volume-%d", servers) }

// Promises are what is asked of block devices. Files are those in the mode that an export has if
// none is named.
func Promises() []bench.Promise {
	var all []bench.Promise
	for _, scene := range []string{SceneTmpfs, SceneDisk} {
		where := " of a file in memory"
		if scene == SceneDisk {
			where = " of a file on disk"
		}
		all = append(all,
			bench.Promise{Name: "the worst case" + where + ", of the best peer", Bound: bench.Least,
				Limit: 0.97, Unit: bench.Times, Of: worst(scene), Also: worstCase(scene)},
			bench.Promise{Name: "1 MiB sequential reads" + where + ", of 1.3 times the best peer or of " +
				"85 % of the null server", Bound: bench.Least, Limit: 1, Unit: bench.Times,
				Of: eitherOf(scene + "-read-1m-d4")},
			bench.Promise{Name: "4 KiB random reads at depth 16" + where + ", of the best peer",
				Bound: bench.Least, Limit: 1.2, Unit: bench.Times,
				Of: ofPeer(scene+"-randread-4k-d16", "")},
			bench.Promise{Name: "processor time of 1 MiB reads" + where + ", of the best peer's",
				Bound: bench.Most, Limit: 0.7, Unit: bench.Times,
				Of: ofPeer(scene+"-read-1m-d4", bench.SystemCPU)})
	}
	all = append(all, bench.Promise{Name: "1 MiB direct reads at depth 1 of throttled members, " +
		"multiple streams, of those without", Bound: bench.Least, Limit: 1.3, Unit: bench.Times,
		Of: through(SceneStreams+"-read-1m-d1", Multiple, Plain, "")})
	for _, v := range []struct {
		text, name string
		limit      float64
	}{
		{"1 MiB reads", "read-1m-d4", 0.7}, {"1 MiB writes", "write-1m-d4", 0.7},
		{"4 KiB random reads at depth 16", "randread-4k-d16", 0.5},
		{"4 KiB random writes at depth 16", "randwrite-4k-d16", 0.5},
	} {
		name := SceneVolume + "-" + v.name
		all = append(all, bench.Promise{Name: v.text + " of a volume over four servers, of a local " +
			"cached file", Bound: bench.Least, Limit: v.limit, Unit: bench.Times,
			Of: through(name, Volume(4), Cached, "")})
		if strings.HasPrefix(v.text, "4 KiB") {
			all = append(all, bench.Promise{Name: "the same: processor time", Bound: bench.Most, Limit: 2,
				Unit: bench.Times, Of: through(name, Volume(4), Cached, bench.SystemCPU)})
		}
	}
	return append(all, beside()...)
}

// beside is printed: what a program on the server's host loses.
func beside() (all []bench.Promise) {
	for _, who := range []string{Sluice, "direct", Qemu, Nbdkit, NbdServer, Null} {
		all = append(all, bench.Promise{Name: "a memory-bound loop beside " + who +
			" takes so many times longer", Bound: bench.Told, Unit: bench.Times,
			Of: bench.Value(SceneDisk+"-"+besideName, who, bench.SlowDown)})
	}
	return all
}

// through is the figure of one server divided by another's.
func through(name, a, b, metric string) bench.Finder {
	return bench.Both(bench.Value(name, a, metric), bench.Value(name, b, metric), bench.Through)
}

// ofPeer is a figure through the best peer's.
func ofPeer(name, metric string) bench.Finder {
	return func(rows bench.Rows) (float64, bool) {
		r := rows.Find(name, Sluice, metric)
		if r == nil || r.PeerRatio == 0 {
			return 0, false
		}
		return r.PeerRatio, true
	}
}

// eitherOf is the better of two ways to keep a promise: 1 and more keeps it.
func eitherOf(name string) bench.Finder {
	return func(rows bench.Rows) (float64, bool) {
		r := rows.Find(name, Sluice, "")
		if r == nil || r.PeerRatio == 0 {
			return 0, false
		}
		return max(r.PeerRatio/1.3, r.Ratio/0.85), true
	}
}

// least is the row of a scene that does worst against the best peer. What costs is not meant, and
// the loop beside it has no better or worse that could be promised.
func least(rows bench.Rows, scene string) (found *bench.Row) {
	for i := range rows {
		r := &rows[i]
		if strings.HasPrefix(r.Case, scene+"-") && r.Provider == Sluice && r.PeerRatio > 0 &&
			(r.Metric == bench.Rate || r.Metric == bench.Bandwidth) &&
			!strings.HasSuffix(r.Case, besideName) && (found == nil || r.PeerRatio < found.PeerRatio) {
			found = r
		}
	}
	return found
}

func worst(scene string) bench.Finder {
	return func(rows bench.Rows) (float64, bool) {
		r := least(rows, scene)
		if r == nil {
			return 0, false
		}
		return r.PeerRatio, true
	}
}

func worstCase(scene string) func(bench.Rows) string {
	return func(rows bench.Rows) string {
		r := least(rows, scene)
		return fmt.Sprintf(" (%s, %s)", strings.TrimPrefix(r.Case, scene+"-"), r.Peer)
	}
}
