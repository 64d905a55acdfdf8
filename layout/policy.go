package layout

import (
	"strconv"
	"strings"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/wire"
)

// Policy is how a user wants new files to be striped. What is zero is left to the cluster.
type Policy struct {
	Unit  int64  // bytes, a power of two from UnitMin to UnitMax
	Width int    // servers, up to WidthMax; WidthAll: as many as there are
	Pool  string // name of the pool of servers that may be used
}

// WidthAll is the width of a file that is striped over all servers that there are for it.
const WidthAll = 1<<16 - 1

// PoolNameMax is how long the name of a pool may be.
const PoolNameMax = 63

// IsZero tells whether everything is left to the cluster.
func (p *Policy) IsZero() bool { return *p == Policy{} }

// Over is the policy with what it leaves open filled in from another one.
func (p Policy) Over(below Policy) Policy {
	if p.Unit == 0 {
		p.Unit = below.Unit
	}
	if p.Width == 0 {
		p.Width = below.Width
	}
	if p.Pool == "" {
		p.Pool = below.Pool
	}
	return p
}

// Validate refuses with errs.Invalid what no cluster could follow.
func (p *Policy) Validate() error {
	if err := checkUnit(p.Unit); err != nil {
		return err
	}
	if err := checkWidth(p.Width); err != nil {
		return err
	}
	if p.Pool == "" {
		return nil
	}
	return CheckPool(p.Pool)
}

func checkUnit(unit int64) error {
	if unit != 0 && (unit < UnitMin || unit > UnitMax || unit&(unit-1) != 0) {
		return errs.Newf(errs.Invalid, "layout", "", "stripe unit %d: want a power of two from %s to %s",
			unit, FormatUnit(UnitMin), FormatUnit(UnitMax))
	}
	return nil
}

func checkWidth(width int) error {
	if width < 0 || width > WidthMax && width != WidthAll {
		return errs.Newf(errs.Invalid, "layout", "", "width %d: want 1 to %d servers, or all", width,
			WidthMax)
	}
	return nil
}

// CheckPool refuses with errs.Invalid what cannot be the name of a pool: it is written between
// others, so it holds letters, digits and -_. only. Words with a meaning of their own are no names.
func CheckPool(name string) error {
	ok := name != "" && len(name) <= PoolNameMax && name[0] != '-' && name[0] != '.'
	for _, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		ok = ok && (letter || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.')
	}
	if !ok || name == Default || name == allServers || name == "none" {
		return errs.Newf(errs.Invalid, "layout", "", "%q is no name for a pool: want up to %d letters, "+
			"digits, -_. and not default, all or none", name, PoolNameMax)
	}
	return nil
}

// Append adds the policy to a message: |unit i64 |width u32 |pool |.
func (p *Policy) Append(e *wire.Enc) {
	e.I64(p.Unit)
	e.U32(uint32(p.Width))
	e.String(p.Pool)
}

// DecodePolicy takes a policy off a message. Whether it can be followed is for Validate to say.
func DecodePolicy(d *wire.Dec) Policy {
	return Policy{Unit: d.I64(), Width: int(d.U32()), Pool: d.String(PoolNameMax)}
}

// The words of policies.
const (
	Default    = "default" // what the cluster chooses
	allServers = "all"
)

// FormatUnit writes a stripe unit as ParseUnit reads it.
func FormatUnit(unit int64) string {
	switch {
	case unit == 0:
		return Default
	case unit%(1<<20) == 0:
		return strconv.FormatInt(unit>>20, 10) + "M"
	case unit%(1<<10) == 0:
		return strconv.FormatInt(unit>>10, 10) + "K"
	}
	return strconv.FormatInt(unit, 10)
}

// ParseUnit reads a stripe unit: bytes, KiB with a K behind, or MiB with an M; or default.
func ParseUnit(text string) (int64, error) {
	if text == Default {
		return 0, nil
	}
	digits := strings.TrimRight(text, "KMkm")
	shift, ok := map[string]int{"": 0, "K": 10, "M": 20}[strings.ToUpper(text[len(digits):])]
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || !ok || n == 0 {
		return 0, errs.Newf(errs.Invalid, "layout", "", "%q is no stripe unit: write it like 512K or 1M",
			text)
	}
	unit := int64(n) << shift
	return unit, checkUnit(unit)
}

// FormatWidth writes a width as ParseWidth reads it.
func FormatWidth(width int) string {
	switch width {
	case 0:
		return Default
	case WidthAll:
		return allServers
	}
	return strconv.Itoa(width)
}

// ParseWidth reads a number of servers, all, or default.
func ParseWidth(text string) (int, error) {
	switch text {
	case Default:
		return 0, nil
	case allServers:
		return WidthAll, nil
	}
	n, err := strconv.ParseUint(text, 10, 15)
	if err != nil || n == 0 {
		return 0, errs.Newf(errs.Invalid, "layout", "", "%q is no width: write a number of servers, or "+
			"all", text)
	}
	return int(n), checkWidth(int(n))
}

// ParsePool reads the name of a pool, or default.
func ParsePool(text string) (string, error) {
	if text == Default {
		return "", nil
	}
	return text, CheckPool(text)
}
