package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// message is what an endpoint gets.
type message struct {
	ID        string           `json:"id"`
	Type      store.ChangeKind `json:"type"`
	Timestamp time.Time        `json:"timestamp"` // since when it is so
	Data      data             `json:"data"`
}

type data struct {
	Effect    string       `json:"effect"`
	State     effect.State `json:"state"`
	Tenant    string       `json:"tenant"`
	Server    string       `json:"server"`
	Tool      string       `json:"tool"`
	Tier      effect.Tier  `json:"tier"`
	Principal string       `json:"principal,omitempty"`
	Run       string       `json:"run,omitempty"`
	Request   *request     `json:"request,omitempty"`
	URL       string       `json:"url,omitempty"` // where a person can look and decide
}

type request struct {
	ID          string       `json:"id"`
	RequestedAt time.Time    `json:"requestedAt"`
	DecideUntil time.Time    `json:"decideUntil"`
	UseUntil    time.Time    `json:"useUntil,omitzero"`
	Quorum      int          `json:"quorum"`
	Missing     int          `json:"missing"`
	Digest      string       `json:"digest"`
	Why         string       `json:"why,omitempty"`
	Last        *effect.Vote `json:"last,omitempty"` // what was decided last
}

// messageID is the same whoever tells of a change, so that an endpoint knows it again.
func messageID(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "msg_" + hex.EncodeToString(sum[:16])
}

func (t *Teller) messageOf(c *store.Change) message {
	r := c.Record
	m := message{ID: messageID(c.Key), Type: c.Kind, Timestamp: c.At, Data: data{
		Effect: r.ID, State: r.StateAt(t.log.Now()), Tenant: r.Tenant, Server: r.Server, Tool: r.Tool, Tier: r.Tier,
		Principal: r.Principal, Run: r.Run,
	}}
	if a := r.Approval; a != nil {
		m.Data.Request = &request{
			ID: a.ID, RequestedAt: a.RequestedAt, DecideUntil: a.DecideUntil, UseUntil: a.UseUntil, Quorum: a.Quorum,
			Missing: a.Missing(), Digest: a.Complete.String(), Why: a.Why, Last: a.Last,
		}
	}
	if t.opts.Link != nil {
		m.Data.URL = t.opts.Link(r.ID)
	}
	return m
}

// sign is the signature of a body, as Standard Webhooks has it.
func sign(secret []byte, id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%s.", id, timestamp)
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// newClient follows no redirect: a message goes where it was meant to go.
func newClient(timeout time.Duration) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 1
	return &http.Client{
		Transport: transport, Timeout: timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// errGone is how an endpoint says that it wants no more messages.
var errGone = errors.New("the webhook's endpoint is gone (410)")

// refusedError is an answer that does not take the message.
type refusedError struct {
	status int
	after  time.Duration // that the endpoint asks to wait
}

func (e *refusedError) Error() string { return fmt.Sprintf("the endpoint answered %d", e.status) }

// send sends one message once.
func (t *Teller) send(ctx context.Context, c *store.Change) error {
	m := t.messageOf(c)
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("write message %s: %w", m.ID, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.opts.URL, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make request of message %s: %w", m.ID, err)
	}
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "undolog")
	req.Header.Set("webhook-id", m.ID)
	req.Header.Set("webhook-timestamp", timestamp)
	req.Header.Set("webhook-signature", sign(t.opts.Secret, m.ID, timestamp, body))
	res, err := t.client.Do(req)
	if err != nil {
		return fmt.Errorf("send message %s: %w", m.ID, withoutURL(err))
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10)) // so that the connection can be used again
	switch {
	case res.StatusCode/100 == 2:
		return nil
	case res.StatusCode == http.StatusGone:
		return errGone
	}
	return fmt.Errorf("send message %s: %w", m.ID, &refusedError{status: res.StatusCode, after: retryAfter(res.Header)})
}

// withoutURL is the cause of a client's error: the URL of a hook often is its credential.
func withoutURL(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

func retryAfter(header http.Header) time.Duration {
	seconds, err := strconv.Atoi(header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxPause)
}
