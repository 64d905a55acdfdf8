// Package size reads numbers of bytes as people write them. It does not write any.
package size

import (
	"math"
	"strconv"
	"strings"
)

// Parse reads a number of bytes with a binary unit: 4096, 64K, 64KiB, 10G, 1T. Negative numbers,
// fractions and what does not fit into 63 bits are refused.
func Parse(text string) (bytes int64, ok bool) {
	number := strings.TrimRight(text, "KMGTPiBkmgtp")
	unit := strings.ToUpper(strings.TrimSuffix(strings.TrimSuffix(text[len(number):], "B"), "i"))
	shift := 0
	if unit != "" {
		i := strings.Index("KMGTP", unit)
		if i < 0 || len(unit) != 1 {
			return 0, false
		}
		shift = 10 * (i + 1)
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64>>shift {
		return 0, false
	}
	return n << shift, true
}
