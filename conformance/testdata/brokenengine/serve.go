package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// answers are what agents on HTTP answer to questions.
var answers = make(chan []byte, 1)

// serve takes one message of an agent on HTTP. Who it is, its token says.
func serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(r.Body)
	var q message
	if err != nil || json.Unmarshal(body, &q) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	switch {
	case q.ID != nil && q.Method == "":
		answers <- body
		w.WriteHeader(http.StatusAccepted)
		return
	case q.ID == nil:
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	stream := http.NewResponseController(w)
	a := &agent{
		say: func(raw []byte) {
			fmt.Fprintf(w, "data: %s\n\n", raw)
			_ = stream.Flush() // an agent that has gone hears nothing
		},
		hear: func() ([]byte, error) {
			select {
			case answer := <-answers:
				return answer, nil
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		},
		principal: strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "),
	}
	a.say(reply(q.ID, a.answer(&q)))
}
