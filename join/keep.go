package join

import (
	"context"
	"log/slog"
	"time"

	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/internal/wait"
)

// keepAfter is how long a process lives before it looks after its credential: most commands have
// ended by then, and leave that to those that stay.
const keepAfter = 10 * time.Second

// Keep reads a credential and keeps it while ctx lasts: it is renewed where members are.
func Keep(ctx context.Context, file string, log *slog.Logger) (*identity.Keeper, error) {
	k, err := identity.NewKeeper(file, identity.KeeperOptions{Source: Remote{}, Log: log})
	if err != nil {
		return nil, err
	}
	go func() {
		if k.Credential().Kind != identity.Client || wait.Sleep(ctx, keepAfter) {
			k.Run(ctx)
		}
	}()
	return k, nil
}
