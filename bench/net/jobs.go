package net

import "github.com/sluice-storage/sluice/bench/partner"

// Jobs are what the other process does for this package, with the providers that open knows.
func Jobs(open partner.Opener) partner.Jobs {
	return partner.Jobs{
		doServe: partner.On(func(s *partner.Session, a serveArgs) (string, error) {
			return serve(s, &a, open)
		}),
		doTune: partner.On(func(s *partner.Session, a serveArgs) (string, error) {
			return serveTuning(s, &a, open)
		}),
		doCopy: partner.On(copies),
		doFar: partner.On(func(s *partner.Session, a farArgs) (struct{}, error) {
			return struct{}{}, far(s, &a, open)
		}),
		doLadder: partner.On(func(s *partner.Session, a ladderArgs) (string, error) {
			return serveLadder(s, &a, open)
		}),
	}
}
