package net

import "github.com/sluice-storage/sluice/bench/peer"

// Jobs are what the other process does for this package, with the providers that open knows.
func Jobs(open peer.Opener) peer.Jobs {
	return peer.Jobs{
		doServe: peer.On(func(s *peer.Session, a serveArgs) (string, error) {
			return serve(s, &a, open)
		}),
		doTune: peer.On(func(s *peer.Session, a serveArgs) (string, error) {
			return serveTuning(s, &a, open)
		}),
		doCopy: peer.On(copies),
		doFar: peer.On(func(s *peer.Session, a farArgs) (struct{}, error) {
			return struct{}{}, far(s, &a, open)
		}),
		doLadder: peer.On(func(s *peer.Session, a ladderArgs) (string, error) {
			return serveLadder(s, &a, open)
		}),
	}
}
