// Command lineadapter is an adapter in JSON lines over the project's own library, for tests of the protocol
// that adapters in other languages speak.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"github.com/undolog/undolog/conformance"
	"github.com/undolog/undolog/conformance/goadapter"
)

type call struct {
	ID           int64                     `json:"id"`
	Call         string                    `json:"call"`
	Session      string                    `json:"session"`
	Interceptors []conformance.Interceptor `json:"interceptors"`
	Event        *string                   `json:"event"`
	Params       json.RawMessage           `json:"params"`
	Phase        string                    `json:"phase"`
	Payload      json.RawMessage           `json:"payload"`
	SessionID    string                    `json:"sessionId"`
}

type reply struct {
	ID           int64           `json:"id"`
	OK           bool            `json:"ok"`
	Message      string          `json:"message,omitempty"`
	Name         string          `json:"name,omitempty"`
	Apply        string          `json:"apply,omitempty"`
	ErrorCode    *int64          `json:"errorCode,omitempty"`
	Result       json.RawMessage `json:"result,omitempty"`
	Decision     string          `json:"decision,omitempty"`
	FinalPayload json.RawMessage `json:"finalPayload,omitempty"`
}

func main() {
	permissive := flag.Bool("permissive", false, "allow everything")
	flag.Parse()
	sessions := map[string]conformance.Session{}
	out := json.NewEncoder(os.Stdout)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var c call
		if err := json.Unmarshal(in.Bytes(), &c); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		r, err := answer(&c, sessions)
		if err != nil {
			r = &reply{Message: err.Error()}
		}
		if *permissive && r.Decision == "deny" {
			r.Decision = "allow"
		}
		r.ID = c.ID
		if err := out.Encode(r); err != nil {
			os.Exit(1)
		}
	}
}

func answer(c *call, sessions map[string]conformance.Session) (*reply, error) {
	ctx := context.Background()
	s := sessions[c.Session]
	switch c.Call {
	case "hello":
		return &reply{OK: true, Name: "lines", Apply: "chain"}, nil
	case "createSession":
		s, err := (&goadapter.Adapter{Transport: goadapter.Direct}).CreateSession(ctx, &conformance.Fixture{Interceptors: c.Interceptors})
		sessions[c.Session] = s
		return &reply{OK: err == nil}, err
	case "list":
		return wire(s.List(ctx, c.Event))
	case "invoke":
		return wire(s.Invoke(ctx, c.Params))
	case "chain":
		d, err := s.Apply(ctx, &conformance.Step{Event: c.Event, Phase: c.Phase, Payload: c.Payload, Context: &conformance.Context{SessionID: c.SessionID}})
		if err != nil {
			return nil, err
		}
		return &reply{OK: true, Decision: d.Decision, FinalPayload: d.FinalPayload}, nil
	case "closeSession":
		return &reply{OK: true}, s.Close()
	}
	return &reply{Message: "unknown call " + c.Call}, nil
}

func wire(a *conformance.Answer, err error) (*reply, error) {
	switch {
	case err != nil:
		return nil, err
	case a.Error != nil:
		return &reply{ErrorCode: &a.Error.Code, Message: a.Error.Message}, nil
	}
	return &reply{OK: true, Result: a.Result}, nil
}
