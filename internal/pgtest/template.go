package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/undolog/undolog/internal/pgcluster"
)

// Template is a database that a process prepares once, when a test first needs it, and copies for each: with a schema
// in it that is much quicker than to make it again. It is safe for concurrent use.
type Template struct {
	prepare func(ctx context.Context, url string) error

	mu   sync.Mutex
	made map[string]*pgcluster.Template // by the address of the server
}

// templates are all of this process.
var templates struct {
	mu  sync.Mutex
	all []*Template
}

// NewTemplate says how a template is filled, by a URL of its owner's; nothing is done yet. What was done is removed by
// Exit.
func NewTemplate(prepare func(ctx context.Context, url string) error) *Template {
	t := &Template{prepare: prepare, made: map[string]*pgcluster.Template{}}
	templates.mu.Lock()
	defer templates.mu.Unlock()
	templates.all = append(templates.all, t)
	return t
}

// New is like the package's New, but that the database is a copy of the template.
func (t *Template) New(tb testing.TB) *pgcluster.Database {
	tb.Helper()
	return newDatabase(tb, t.copy)
}

func (t *Template) copy(ctx context.Context, admin string) (*pgcluster.Database, error) {
	from, err := t.on(ctx, admin)
	if err != nil {
		return nil, err
	}
	return from.Copy(ctx)
}

// on returns the template on a server.
func (t *Template) on(ctx context.Context, admin string) (*pgcluster.Template, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if made := t.made[admin]; made != nil {
		return made, nil
	}
	made, err := pgcluster.CreateTemplate(ctx, admin, t.prepare)
	if err != nil {
		return nil, err
	}
	t.made[admin] = made
	return made, nil
}

func (t *Template) drop() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var err error
	for admin, made := range t.made {
		err = errors.Join(err, made.Drop(context.Background()))
		delete(t.made, admin)
	}
	return err
}

// Exit ends the process of tests, as the last thing of a TestMain, and removes its templates before. Those of a process
// that ends without it stay on a server that goes on, until another process makes one there.
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(pgtest.Exit)) }
func Exit(code int) {
	templates.mu.Lock()
	defer templates.mu.Unlock()
	for _, t := range templates.all {
		if err := t.drop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}
