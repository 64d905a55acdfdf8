package client

import (
	"testing"

	"github.com/sluice-storage/sluice/meta"
)

// TestOldSessionSaysNothing: who ends a recall of a session that was replaced meanwhile takes no
// acknowledgement along that belongs to the new one, where somebody waits for it.
func TestOldSessionSaysNothing(t *testing.T) {
	var l leases
	l.begin(&meta.SessionInfo{ID: 1, LeaseTimeMs: 5000})
	l.begin(&meta.SessionInfo{ID: 2, LeaseTimeMs: 5000})
	heard := l.take(2, &meta.Heard{Recalls: []meta.Recall{{Serial: 7, Ino: 9}}})
	if len(heard.recalls) != 1 {
		t.Fatalf("%d recalls", len(heard.recalls))
	}
	l.carriedOut(2, heard.recalls[0])
	old := l.say(1, false)
	l.unsaid(1, old.Acks) // the service does not know the session
	if len(old.Acks) != 0 || old.Seen != 0 {
		t.Errorf("the old session says %+v", old)
	}
	if said := l.say(2, true); len(said.Acks) != 1 || said.Seen != 7 || said.WaitMs == 0 {
		t.Errorf("the new session says %+v", said)
	}
}
