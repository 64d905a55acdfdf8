package msg

import (
	"testing"
	"time"

	"github.com/sluice-storage/sluice/fabric"
)

// TestPlantedDefectsAreFound shows that the checks of the other tests can fail: each run
// plants one fault that a message layer could have and expects a check to notice it.
func TestPlantedDefectsAreFound(t *testing.T) {
	for _, d := range []struct {
		name  string
		plant defects
		check func(t *testing.T, r *rig) error
	}{
		{"lost credit", defects{loseCredit: true}, checkModel},
		{"reply before data", defects{earlyReply: true}, checkModel},
		{"key kept after reply", defects{keepGrants: true}, checkCancel},
		{"leak on cancel", defects{leakOnAbort: true}, checkCancel},
		{"receive not posted again", defects{keepReceive: true}, checkModel},
		{"pieces out of order", defects{swapPieces: true}, checkModel},
		{"priority inverted", defects{invertLevels: true}, func(t *testing.T, r *rig) error {
			return checkLevels(t, r.server.defects)
		}},
		{"slot reused early", defects{reuseEarly: true}, func(t *testing.T, _ *rig) error {
			return checkEager(t, newRigFor(t, simProviders()[1], echo, planted(defects{reuseEarly: true})))
		}},
		{"window overrun", defects{overrun: true}, func(t *testing.T, _ *rig) error {
			return checkUnits(t, newRig(t, simProviders()[1], mirror(), planted(defects{overrun: true})))
		}},
		{"none: eager slots", defects{}, func(t *testing.T, _ *rig) error {
			return checkEager(t, newRigFor(t, simProviders()[1], echo, nil))
		}},
		{"none: the model", defects{}, checkModel},
		{"none: cancellation", defects{}, checkCancel},
	} {
		t.Run(d.name, func(t *testing.T) {
			planted := d.plant != defects{}
			found := false
			for round := 0; round < 5 && !found; round++ {
				r := newRigFor(t, simProviders()[1], func(dom fabric.Domain) Handler {
					if d.name == "key kept after reply" || d.name == "leak on cancel" ||
						d.name == "none: cancellation" {
						return &restless{domain: dom}
					}
					return &modelHandler{dom}
				}, func(client, server *Options) {
					if planted {
						client.CallTimeout = time.Second
					}
					client.Credits = 12
					client.plant, server.plant = d.plant, d.plant
				})
				err := d.check(t, r)
				found = err != nil
				if found && !planted {
					t.Fatal(err)
				}
				if found {
					t.Logf("found: %v", err)
				}
				r.close()
			}
			if planted && !found {
				t.Fatal("nobody noticed")
			}
		})
	}
}

// planted makes nodes with small units and a defect.
func planted(d defects) func(client, server *Options) {
	return func(client, server *Options) {
		smallUnits(client, server)
		client.plant, server.plant = d, d
	}
}

func checkModel(t *testing.T, r *rig) error {
	limit := time.Second
	if r.client.defects == (defects{}) {
		limit = 20 * time.Second
	}
	return runModelWithin(t, r, 30, 3, limit)
}

func checkCancel(t *testing.T, r *rig) error {
	if err := cancelAtRandom(t, r, 8); err != nil {
		return err
	}
	return quiet(r)
}
