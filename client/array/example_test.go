package array_test

import (
	"context"
	"fmt"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/client/array"
	"github.com/sluice-storage/sluice/client/clustertest"
)

// A field of 6 x 8 bytes; a tile of 2 x 4 is read with one ghost cell around it, from a field that
// is periodic.
func ExampleTiles() {
	url, stop, err := clustertest.Start(2)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	ctx := context.Background()
	fs, err := client.Open(ctx, url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer fs.Close()
	f, err := fs.Create(ctx, "/field.npy")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close(ctx)

	kind, _ := array.ParseType("uint8")
	a, err := array.Create(ctx, f, array.Header{Type: kind, Shape: []int64{6, 8}})
	if err != nil {
		fmt.Println(err)
		return
	}
	text := []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUV")
	if err := a.All().Write(ctx, text, array.RowMajor); err != nil {
		fmt.Println(err)
		return
	}
	tiles, err := a.Tiles(array.TileOptions{Shape: []int64{2, 4}, Ghost: []int64{1, 1},
		Edge: array.Wrap})
	if err != nil {
		fmt.Println(err)
		return
	}
	p := make([]byte, 4*6)
	if err := tiles.Read(ctx, p, 0, 1); err != nil { // rows 0 and 1, columns 4 to 7
		fmt.Println(err)
		return
	}
	for ; len(p) > 0; p = p[6:] {
		fmt.Println(string(p[:6]))
	}
	// Output:
	// RSTUVO
	// defgha
	// lmnopi
	// tuvwxq
}
