package size

import "testing"

func TestParse(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "4096": 4096, "64K": 64 << 10, "64k": 64 << 10, "64KiB": 64 << 10, "10G": 10 << 30,
		"1T": 1 << 40, "7P": 7 << 50, "512MB": 512 << 20,
	} {
		if got, ok := Parse(text); !ok || got != want {
			t.Errorf("%s is %d, %v; want %d", text, got, ok, want)
		}
	}
	for _, bad := range []string{"", "K", "-1", "1.5G", "12X", "1GG", "9999999P", "many", "1 G"} {
		if got, ok := Parse(bad); ok {
			t.Errorf("%q is %d", bad, got)
		}
	}
}
