// Package systest drives the built binary on this host as users do: a cluster of real processes, a
// real mount, real block clients, and kill -9. It has tests only, and imports nothing of the
// project but what the commands print.
//
// Faults come from outside: kill -9 (kill_test.go), pauses (pause_test.go), a disk that is full
// (space_test.go), inverted bits (damage_test.go), a server that stays away (gone_test.go), clocks
// that differ (clock_test.go); a clock that is set needs a host of its own, see vmtest/attach.
// load_test.go is the programs that run meanwhile and know what must be there; others are SQLite
// (sqlite_test.go), PostgreSQL (postgres_test.go) and fio (fio_test.go).
//
// Block devices: block_test.go lets clients that nobody here wrote work on every kind of export,
// which is a table. recorder_test.go is a client with several connections that knows what must be
// there; blockkill_test.go kills its servers, blocktrouble_test.go takes their disks and servers
// away, blockhostile_test.go talks nonsense beside it, blockcrowd_test.go are a thousand.
//
// Two mounts are compared with a local file system by random operations: model_test.go runs and
// shortens them, twinops_test.go has the operations, twins_test.go compares.
//
// Read harness_test.go first, then programs_test.go, block_test.go and faults_test.go.
package systest
