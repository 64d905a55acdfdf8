package main

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// parseDate reads a time as people write it: see the help of `sluice touch`.
func parseDate(text string, now time.Time) (time.Time, error) {
	text = strings.TrimSpace(text)
	if seconds, ok := strings.CutPrefix(text, "@"); ok {
		return parseSeconds(text, seconds)
	}
	day := 24 * time.Hour
	switch strings.ToLower(text) {
	case "now":
		return now, nil
	case "yesterday":
		return now.Add(-day), nil
	case "tomorrow":
		return now.Add(day), nil
	}
	if d, ok := parseAgo(text); ok {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999",
		"2006-01-02 15:04:05.999999999 -0700", "2006-01-02 15:04:05.999999999 MST",
		"2006-01-02 15:04:05.999999999", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02",
		time.RFC1123, time.RFC1123Z, time.UnixDate} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, noDate(text)
}

func noDate(text string) error {
	return refuse(strconv.Quote(text)+" is no time",
		`Write it like 2026-11-18T09:30:00Z, "2026-11-18 09:30", @1700000000 or "2 hours ago"`)
}

// parseSeconds reads seconds since 1970 with up to nine digits behind the point.
func parseSeconds(all, text string) (time.Time, error) {
	whole, fraction, _ := strings.Cut(text, ".")
	s, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || len(fraction) > 9 || s < -(1<<33) || s > 1<<33 {
		return time.Time{}, noDate(all)
	}
	ns, err := strconv.ParseUint("0"+(fraction + "000000000")[:9], 10, 64)
	if err != nil {
		return time.Time{}, noDate(all)
	}
	if strings.HasPrefix(whole, "-") {
		return time.Unix(s, -int64(ns)), nil
	}
	return time.Unix(s, int64(ns)), nil
}

// parseAgo reads "3 days ago".
func parseAgo(text string) (time.Duration, bool) {
	m := regexp.MustCompile(`^(?i)(\d{1,6})\s*(second|sec|minute|min|hour|day|week)s?\s+ago$`).
		FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	n, err := strconv.Atoi(m[1])
	unit := map[string]time.Duration{"second": time.Second, "sec": time.Second,
		"minute": time.Minute, "min": time.Minute, "hour": time.Hour, "day": 24 * time.Hour,
		"week": 7 * 24 * time.Hour}[strings.ToLower(m[2])]
	return time.Duration(n) * unit, err == nil
}

// parseStamp reads [[CC]YY]MMDDhhmm[.ss], as touch(1) does.
func parseStamp(text string, now time.Time) (time.Time, error) {
	digits, seconds, dotted := strings.Cut(text, ".")
	layout := "200601021504"
	switch len(digits) {
	case 8:
		digits = strconv.Itoa(now.Year()) + digits
	case 10:
		century := "20"
		if digits >= "69" {
			century = "19"
		}
		digits = century + digits
	}
	if dotted {
		layout, digits = layout+".05", digits+"."+seconds
	}
	t, err := time.ParseInLocation(layout, digits, now.Location())
	if err != nil {
		return t, refuse(strconv.Quote(text)+" is no stamp",
			"Write [[CC]YY]MMDDhhmm[.ss], like 202611180930")
	}
	return t, nil
}
