package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/seg"
)

// toldFile is a file that tells, from tell on, how each access to many pieces was carried out.
type toldFile struct {
	*client.File
	to io.Writer // nil: it does not
}

func addExplain(cmd *cobra.Command, explain *bool) {
	cmd.Flags().BoolVar(explain, "explain", false, "tell, on stderr, what each I/O server was asked, "+
		"and how the pieces were moved")
}

func (f *toldFile) tell(cmd *cobra.Command, explain bool) {
	if explain {
		f.to = cmd.ErrOrStderr()
	}
}

func (f *toldFile) list(ctx context.Context, t *client.Transfer) (int64, error) {
	var how client.Explanation
	if f.to != nil {
		t.Explain = &how
	}
	n, err := f.Transfer(ctx, t)
	if f.to != nil && err == nil {
		fmt.Fprint(f.to, how.String())
	}
	return n, err
}

func (f *toldFile) ReadList(ctx context.Context, bufs [][]byte, a seg.Access) (int64, error) {
	return f.list(ctx, &client.Transfer{Bufs: bufs, File: a})
}

func (f *toldFile) WriteList(ctx context.Context, bufs [][]byte, a seg.Access) (int64, error) {
	return f.list(ctx, &client.Transfer{Write: true, Bufs: bufs, File: a})
}
