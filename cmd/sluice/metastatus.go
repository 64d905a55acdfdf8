package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/errs"
	product "github.com/sluice-storage/sluice/internal/version"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/meta/server"
	"github.com/sluice-storage/sluice/meta/store"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
)

// opMetaStatus asks the metadata service about itself: far above the operations of package meta,
// whose numbers grow from below. The answer's body is an admin.Meta as JSON, for people.
const opMetaStatus = 0xff00

// metaHandler serves names, and tells how it is doing.
type metaHandler struct {
	names   *store.Store
	server  *server.Server
	health  func() error // why changes are refused; nil: they are not
	net     *peer.Network
	log     *slog.Logger
	running atomic.Pointer[msg.Server]
	joiner  *joiner       // nil: nobody can join
	self    *lateIdentity // what this host proves itself by
	id      string        // the cluster's
}

func newMetaHandler(names *store.Store, health func() error, net *peer.Network,
	log *slog.Logger) (*metaHandler, error) {
	s, err := server.New(names, server.Options{Node: net.Node, Log: log})
	return &metaHandler{names: names, server: s, health: health, net: net, log: log}, err
}

// Serve implements msg.Handler.
func (h *metaHandler) Serve(ctx context.Context, c *msg.Call) {
	if c.Header().Op != opMetaStatus {
		h.server.Serve(ctx, c)
		return
	}
	body, err := h.status()
	if err == nil && len(body) > c.MaxReply() {
		err = errs.Newf(errs.TooBig, "meta.Status", "", "%d bytes", len(body))
	}
	// Whoever asked is gone if the answer cannot be delivered.
	if err != nil {
		_ = c.Fail(err)
		return
	}
	_ = c.Reply(body, 0)
}

func (h *metaHandler) status() ([]byte, error) {
	st, err := h.names.Status()
	if health := h.health(); health != nil {
		err = health // the better reason; numbers that are missing are 0
	}
	m := admin.Meta{Sessions: st.Sessions, Handles: st.Handles, Files: st.Files, Queued: st.Queued,
		Removed: st.Removed, Ops: []admin.OpUse{}, Version: product.String(), Memory: residentBytes(),
		Cluster: h.id}
	if err != nil {
		m.Problem = err.Error()
	}
	for _, c := range h.server.Status() {
		m.Ops = append(m.Ops, admin.OpUse{Op: c.Op, Calls: c.Calls, Failed: c.Failed,
			MeanUs: float64(c.Time.Microseconds()) / float64(c.Calls)})
	}
	for _, c := range append(h.refused(), countsOf(h.net, h.running.Load())...) {
		m.Counts = append(m.Counts, admin.Count{Name: c.Name, Value: c.Value})
	}
	return json.Marshal(m)
}

// families are the metrics of the metadata service.
func (h *metaHandler) families() []admin.Family {
	var f families
	f.process()
	healthy := int64(1)
	if h.health() != nil {
		healthy = 0
	}
	h.joiner.families(&f)
	f.gauge("meta_healthy", "1 if all changes are taken, 0 if none are, or removals only.", healthy)
	if st, err := h.names.Status(); err == nil {
		f.gauge("meta_sessions", "Clients with a session.", int64(st.Sessions))
		f.gauge("meta_sessions_ending", "Sessions that are gone and have handles left.",
			int64(st.Ending))
		f.count("meta_pauses_total", "Times that the service did not run and renewed all leases.",
			uint64(st.Pauses))
		f.gauge("meta_handles", "Open files of all sessions.", int64(st.Handles))
		f.gauge("meta_locks", "Locks that are held.", int64(st.Locks))
		f.gauge("meta_lock_waits", "Requests that wait for locks.", int64(st.LockWaits))
		f.gauge("meta_leases", "Leases on files and directories that clients hold.",
			int64(st.Leases.Leases))
		f.count("meta_leases_total", "Leases that were granted.", st.Leases.Granted)
		f.count("meta_leases_refused_total", "Answers that came without a lease.", st.Leases.Refused)
		f.count("meta_recalls_total", "Leases that were asked for back.", st.Leases.Recalls)
		f.count("meta_recalls_expired_total", "Clients that did not answer and lost their leases.",
			st.Leases.Expired)
		f.gauge("meta_files", "Files and directories.", st.Files)
		f.gauge("meta_queued", "Removed files whose remains wait to be removed.", int64(st.Queued))
		f.gauge("meta_trees", "Directories of removed trees that are not emptied yet.", int64(st.Trees))
		f.count("meta_pruned_total", "Entries that were removed with trees.", uint64(st.Pruned))
		f.count("meta_removed_total", "Files whose remains were removed.", uint64(st.Removed))
		f.count("meta_collected_total", "Stripe objects that no file named and that were removed.",
			uint64(st.Collected))
		f.count("meta_servers_refused_total", "Requests of I/O servers that claimed what is not theirs.",
			st.Refused)
		f.count("meta_strangers_refused_total",
			"Requests of members that were removed, or with the session of another.", st.Strangers)
		f.gauge("meta_unnamed_objects", "Stripe objects that no file names and that are left alone.",
			st.Unnamed)
	}
	h.refusals(&f)
	for _, c := range h.server.Status() {
		f.by(admin.Counter, "meta_requests_total", "Requests, by operation.", "op", c.Op,
			float64(c.Calls))
	}
	for _, c := range h.server.Status() {
		f.by(admin.Counter, "meta_failed_total", "Of these, those that failed.", "op", c.Op,
			float64(c.Failed))
		f.by(admin.Counter, "meta_seconds_total", "Time spent on them.", "op", c.Op, c.Time.Seconds())
	}
	f.times("meta_request_seconds", "Time that requests take, by operation.",
		h.server.Activity().Ops())
	f.network(h.net, h.running.Load())
	return f.all
}

// countsOf are the numbers of what a server runs on: its connections by provider, memory that its
// clients hold, and what came of its own attempts to reach others, by provider and reason.
func countsOf(net *peer.Network, s *msg.Server) []iod.Count {
	var out []iod.Count
	if s != nil {
		out = append(out, iod.Count{Name: "calls_handed", Value: s.Stats().Handed})
		via := s.Via()
		for _, name := range slices.Sorted(maps.Keys(via)) {
			out = append(out, iod.Count{Name: "connections_" + name, Value: uint64(via[name])})
		}
	}
	st := net.Stats()
	out = append(out, iod.Count{Name: "eager_bytes", Value: uint64(st.Memory.EagerBytes)},
		iod.Count{Name: admin.ProgressPrefix + st.Progress.String(), Value: 1},
		iod.Count{Name: "waits_spun", Value: st.Waits.Spun},
		iod.Count{Name: "waits_slept", Value: st.Waits.Slept},
		iod.Count{Name: "replies_woken", Value: st.Woken})
	out = append(out, waysOf(net, s)...)
	var tries []iod.Count
	for at, n := range net.LadderCounts() {
		outcome := "taken"
		if at.Outcome != errs.OK {
			outcome = strings.ReplaceAll(at.Outcome.String(), " ", "_")
		}
		tries = append(tries, iod.Count{Name: "ladder_" + at.Provider + "_" + outcome, Value: n})
	}
	slices.SortFunc(tries, func(a, b iod.Count) int { return strings.Compare(a.Name, b.Name) })
	return append(out, tries...)
}

// wayOf tells by what a connection goes, and why not by something better.
func wayOf(net *peer.Network, c *msg.Conn) admin.Way {
	server := net.Known(c)
	w := admin.Way{Provider: c.Provider(), Known: knownAs(server.Proof, server.Name)}
	for _, s := range net.WhyNot(c) {
		w.WhyNot = append(w.WhyNot, admin.Step{Provider: s.Provider, At: s.Addr,
			Kind: errs.KindOf(s.Err).String(), Reason: reason(s.Err)})
	}
	return w
}

// askMeta is the other side.
func askMeta(ctx context.Context, net *peer.Network, addr string) (*admin.Meta, error) {
	conn, err := net.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var rep msg.Reply
	if err := conn.Call(ctx, &msg.Request{Op: opMetaStatus}, &rep); err != nil {
		return nil, err
	}
	m := &admin.Meta{}
	if err := json.Unmarshal(rep.Body, m); err != nil {
		return nil, errs.New(errs.Protocol, "meta.Status", addr, err)
	}
	m.Way = wayOf(net, conn)
	return m, nil
}
