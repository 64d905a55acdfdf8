package keytable

import "testing"

func TestKeysAreNewAndPlacesAreUsedAgain(t *testing.T) {
	made := 0
	k := New(func() *int { made++; return new(int) })
	seen := map[uint64]bool{0: true}
	for range 1000 {
		var keys []uint64
		for range 5 {
			p, key, err := k.Place()
			if err != nil || seen[key] || k.Find(key) != p {
				t.Fatalf("key %x: %v", key, err)
			}
			seen[key] = true
			keys = append(keys, key)
		}
		for _, key := range keys {
			k.GiveBack(key)
		}
	}
	if made != 5 || len(k.All()) != 5 {
		t.Fatalf("%d places were made for five at a time", made)
	}
	if k.Find(1<<PlaceBits-1) != nil {
		t.Fatal("a place that was never made")
	}
}
