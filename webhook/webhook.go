package webhook

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// Options configures a Teller.
type Options struct {
	// URL takes the messages, by POST. Required. It is never redirected.
	URL string
	// Secret signs them; see ParseSecret. Required.
	Secret []byte
	// Tenants are those of whose effects is told. Defaults to effect.DefaultTenant.
	Tenants []string
	// Link is the page of an effect, for people. Nil: messages have no link.
	Link func(id string) string
	// LookEvery is how often the log is looked into. Defaults to 200 ms.
	LookEvery time.Duration
	// RetryAfter is the pause after a first failure; it doubles with each, up to five minutes. Defaults to 1 s.
	RetryAfter time.Duration
	// Timeout bounds one try. Defaults to 10 s.
	Timeout time.Duration
	// Logger is told of messages that are not taken. Defaults to silence.
	Logger *slog.Logger
}

// Teller sends messages. Make one with New.
type Teller struct {
	log    *store.Log
	opts   Options
	client *http.Client
}

// New makes a teller of what happens in a log.
func New(log *store.Log, opts *Options) (*Teller, error) {
	o := opts.resolved()
	if u, err := url.Parse(o.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("the webhook's URL is none: want https://HOST/PATH")
	}
	if len(o.Secret) == 0 {
		return nil, errors.New("the webhook has no secret to sign with")
	}
	return &Teller{log: log, opts: o, client: newClient(o.Timeout)}, nil
}

func (o *Options) resolved() Options {
	r := *o
	if len(r.Tenants) == 0 {
		r.Tenants = []string{effect.DefaultTenant}
	}
	if r.LookEvery <= 0 {
		r.LookEvery = 200 * time.Millisecond
	}
	if r.RetryAfter <= 0 {
		r.RetryAfter = time.Second
	}
	if r.Timeout <= 0 {
		r.Timeout = 10 * time.Second
	}
	if r.Logger == nil {
		r.Logger = slog.New(slog.DiscardHandler)
	}
	return r
}

// ParseSecret reads a secret as endpoints give it: "whsec_" and base64, else the text itself. It has at least
// 16 bytes.
func ParseSecret(text string) ([]byte, error) {
	secret := []byte(text)
	if encoded, ok := strings.CutPrefix(text, "whsec_"); ok {
		var err error
		if secret, err = base64.StdEncoding.DecodeString(encoded); err != nil {
			return nil, errors.New("the webhook's secret is no base64 behind whsec_")
		}
	}
	if len(secret) < 16 {
		return nil, fmt.Errorf("the webhook's secret has %d bytes: want 16 or more", len(secret))
	}
	return secret, nil
}

// Run tells until ctx ends or the endpoint says that it is gone for good. What is not told by then is told by
// whoever runs next.
func (t *Teller) Run(ctx context.Context) error {
	defer t.client.CloseIdleConnections()
	group, ctx := errgroup.WithContext(ctx)
	for _, tenant := range t.opts.Tenants {
		group.Go(func() error { return t.newDesk(tenant).run(ctx) })
	}
	err := group.Wait()
	if errors.Is(err, errGone) {
		t.opts.Logger.ErrorContext(ctx, "webhook ended", slog.Any("error", err))
		return err
	}
	return nil
}
