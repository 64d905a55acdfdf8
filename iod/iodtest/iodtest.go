// Package iodtest proves an I/O server: random requests of several clients, with servers that
// crash and clients that vanish, against a ledger that knows which bytes a read may return; mutants
// of server, client and cache that the ledger must find; clients that misbehave; and the shares of
// those who do not.
//
// What is exported is the ledger and the crowd of clients, for tests that drive servers of another
// kind (processes, in systest). The rig that starts and crashes a whole server inside one process
// is in the tests.
//
// Read ledger.go first, then judge.go (what a crash changes), crowd.go and hand.go (who asks for
// what), rig_test.go and random_test.go.
package iodtest
