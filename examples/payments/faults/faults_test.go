package faults_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/examples/payments/faults"
)

func TestMeet(t *testing.T) {
	t.Run("without a control file nothing is wrong", func(t *testing.T) {
		if got := meet(t, filepath.Join(t.TempDir(), "none"), "charge"); got != (faults.Rule{}) {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("a rule is met as often as it says, and counted beyond", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "faults")
		write(t, path, faults.Set{"charge": {After: faults.Kill, Times: 2}})
		var got []faults.Act
		for range 3 {
			got = append(got, meet(t, path, "charge").After)
		}
		if diff := cmp.Diff([]faults.Act{faults.Kill, faults.Kill, faults.None}, got); diff != "" {
			t.Errorf("acts (-want +got)\n%s", diff)
		}
		if n, err := faults.Hits(path, "charge"); n != 3 || err != nil {
			t.Errorf("hits %d, %v; want 3", n, err)
		}
		write(t, path, faults.Set{"charge": {After: faults.Kill, Times: 2}})
		if got := meet(t, path, "charge").After; got != faults.Kill {
			t.Errorf("after a new Write: %q", got)
		}
	})
	t.Run("the rule for any tool is for those without their own", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "faults")
		write(t, path, faults.Set{faults.Any: {Before: faults.Drop}, "refund": {WrongTypes: true}})
		if got := meet(t, path, "charge"); got.Before != faults.Drop {
			t.Errorf("charge met %+v", got)
		}
		if got := meet(t, path, "refund"); got.Before != faults.None || !got.WrongTypes {
			t.Errorf("refund met %+v", got)
		}
	})
}

func TestParse(t *testing.T) {
	if _, err := faults.Parse([]byte(`{"charge":{"dleay":1}}`)); err == nil {
		t.Error("a misspelt member was accepted")
	}
}

func meet(t *testing.T, path, tool string) faults.Rule {
	t.Helper()
	rule, err := faults.Meet(path, tool)
	if err != nil {
		t.Fatal(err)
	}
	return rule
}

func write(t *testing.T, path string, set faults.Set) {
	t.Helper()
	if err := faults.Write(path, set); err != nil {
		t.Fatal(err)
	}
}
