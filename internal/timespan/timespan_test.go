package timespan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/undolog/undolog/internal/timespan"
)

func TestParse_ReadsDaysAndWeeksBeforeGosUnits(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "1h30m": 90 * time.Minute, "250ms": 250 * time.Millisecond, "0": 0,
		"2d": 48 * time.Hour, "0.5d": 12 * time.Hour, "1d12h": 36 * time.Hour, "30d": 720 * time.Hour,
		"1w": 168 * time.Hour, "1w2d3h": 219 * time.Hour, "1.5w": 252 * time.Hour, "0d": 0,
		"-2d": -48 * time.Hour, "-1d12h": -36 * time.Hour, "-5m": -5 * time.Minute, "36500d": 36500 * 24 * time.Hour,
	} {
		got, err := timespan.Parse(text)
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestParse_RefusesWhatIsNoLength(t *testing.T) {
	for _, text := range []string{
		"", "d", "w", "-", "2", "d2", "2 d", "1d2w", "1d-2h", "1d+2h", "--2h", "1e3d", "infd", "nand", "+2d", "tomorrow", "2d3", "1d2d", "1.d.d",
	} {
		if got, err := timespan.Parse(text); err == nil || !strings.Contains(err.Error(), "such as") {
			t.Errorf("Parse(%q) = %v, %v; want an error that says how it is written", text, got, err)
		}
	}
	for _, text := range []string{"36501d", "5215w", "876001h", "36500d1h", "99999999999999999999d", "-36501d"} {
		if got, err := timespan.Parse(text); err == nil || !strings.Contains(err.Error(), "longer than 36500 days") {
			t.Errorf("Parse(%q) = %v, %v; want an error that says it is too long", text, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"1w2d3h", "-0.5d", "90s", "9223372036s", ".d"} {
		f.Add(seed)
	}
	const longest = 36500 * 24 * time.Hour
	f.Fuzz(func(t *testing.T, text string) {
		d, err := timespan.Parse(text)
		if err != nil {
			return
		}
		if d > longest || d < -longest {
			t.Fatalf("Parse(%q) = %v, beyond what it reads", text, d)
		}
		if again, err := timespan.Parse(d.String()); err != nil || again != d {
			t.Fatalf("Parse(%q) = %v, which reads as %v, %v", text, d, again, err)
		}
	})
}

func TestValue_IsAFlag(t *testing.T) {
	held := 45 * time.Second
	flag := timespan.NewValue(&held)
	if flag.String() != "45s" {
		t.Errorf("the default is %s, want 45s", flag)
	}
	if none := timespan.NewValue(new(time.Duration)); none.String() != "0" {
		t.Errorf("no default is %q, want 0", none)
	}
	if err := flag.Set("2d"); err != nil || held != 48*time.Hour {
		t.Errorf("Set(2d) = %v, held %v; want 48h", err, held)
	}
	if err := flag.Set("soon"); err == nil || held != 48*time.Hour {
		t.Errorf("Set(soon) = %v, held %v; want an error and 48h as before", err, held)
	}
}
