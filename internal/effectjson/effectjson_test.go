package effectjson_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/effectjson"
)

// By its key, its scope or its handle whoever has them goes on with a call.
func TestOf_TellsNothingThatOnlyTheCallerMayKnow(t *testing.T) {
	r := &effect.Record{ID: "e-1", State: effect.StateAwaitingApproval, Key: "only-key", Scope: "only-scope", Occurrence: "only-occurrence"}
	r.Approval = &effect.Approval{ID: "r-1", Handle: "only-handle", Quorum: 2}
	text, err := json.Marshal(effectjson.Of(r, time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "only-") || !strings.Contains(string(text), `"missing":2`) {
		t.Errorf("an effect is %s", text)
	}
}

func TestOf_LeavesOutWhatIsNotThere(t *testing.T) {
	text, err := json.Marshal(effectjson.Of(&effect.Record{ID: "e-1", Arguments: json.RawMessage{}}, time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	for _, absent := range []string{"arguments", "approval", "answer", "run"} {
		if strings.Contains(string(text), `"`+absent+`"`) {
			t.Errorf("%s stands in %s", absent, text)
		}
	}
}

// A server may answer with bytes that are no UTF-8, and the log has them as they came.
func TestOf_IsUTF8WhateverTheServerSent(t *testing.T) {
	r := &effect.Record{ID: "e-1", Answer: effect.Answer{Kind: effect.AnswerResult, Body: json.RawMessage("{\"text\":\"a\xff\xfeb\"}")}}
	text, err := json.Marshal(effectjson.Of(r, time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	if !utf8.Valid(text) || !strings.Contains(string(text), "{\"text\":\"a\uFFFDb\"}") {
		t.Errorf("an effect is %q", text)
	}
}
