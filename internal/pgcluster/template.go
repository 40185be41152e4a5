package pgcluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Template is a database that others are copied from. Nobody can connect to it, since it could not be copied
// meanwhile. It is safe for concurrent use, but for Drop.
type Template struct {
	admin string
	name  string    // of the database, and of the role that owns what is in it
	life  *pgx.Conn // shows other processes that this one lives: by its end they know that the template is nobody's
}

// templatePrefix begins the names of templates, and of nothing else.
const templatePrefix = "undolog_template_"

// CreateTemplate makes a template on the server that the URL names as a superuser: prepare fills it, by a URL of its
// owner's. It also removes those whose processes ended without Drop.
func CreateTemplate(ctx context.Context, admin string, prepare func(ctx context.Context, url string) error) (*Template, error) {
	t := &Template{admin: admin, name: templatePrefix + strings.ToLower(rand.Text()[:12])}
	if err := t.announce(ctx); err != nil {
		return nil, fmt.Errorf("create template: %w", err)
	}
	err := t.sweep(ctx)
	if err == nil {
		err = t.fill(ctx, prepare)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create template: %w", err), t.Drop(context.WithoutCancel(ctx)))
	}
	return t, nil
}

// announce shows that the template's process lives, before anything of it is there to be removed.
func (t *Template) announce(ctx context.Context) error {
	config, err := pgx.ParseConfig(t.admin)
	if err != nil {
		return err
	}
	config.RuntimeParams["application_name"] = t.name
	config.RuntimeParams["idle_session_timeout"] = "0"
	t.life, err = pgx.ConnectConfig(ctx, config)
	return err
}

// sweep removes what is nobody's. A role is made before its database and removed after it, so that roles name all.
func (t *Template) sweep(ctx context.Context) error {
	rows, err := t.life.Query(ctx, `
		SELECT rolname
		FROM pg_roles
		WHERE starts_with(rolname, $1)
		  AND NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = rolname)`, templatePrefix)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, name := range names {
		err = errors.Join(err, removeTemplate(ctx, t.life, name))
	}
	return err
}

// fill makes the database. What is in it is its role's; the database is not, since REASSIGN OWNED would give that away
// with the first copy.
func (t *Template) fill(ctx context.Context, prepare func(ctx context.Context, url string) error) error {
	db, err := addresses(t.admin, t.name)
	if err != nil {
		return err
	}
	err = executeOn(ctx, t.life, createRole(db), fmt.Sprintf("CREATE DATABASE %s", t.name), fmt.Sprintf("GRANT ALL ON DATABASE %s TO %s", t.name, t.name))
	if err != nil {
		return err
	}
	if err := prepare(ctx, db.URL); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	return t.shut(ctx)
}

// shut returns when nobody is connected, and nobody will be: a server that is slow would not copy it meanwhile.
func (t *Template) shut(ctx context.Context) error {
	if err := executeOn(ctx, t.life, fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS false", t.name)); err != nil {
		return err
	}
	_, err := t.life.Exec(ctx, `SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = $1`, t.name)
	return err
}

// Copy makes a database like the template, and an owner of it and of all that is in it.
func (t *Template) Copy(ctx context.Context) (*Database, error) {
	db, err := newAddresses(t.admin)
	if err != nil {
		return nil, err
	}
	err = execute(ctx, t.admin, createRole(db), fmt.Sprintf("CREATE DATABASE %s OWNER %s TEMPLATE %s", db.Name, db.Name, t.name))
	if err == nil {
		err = execute(ctx, db.AdminURL, fmt.Sprintf("REASSIGN OWNED BY %s TO %s", t.name, db.Name))
	}
	if err != nil {
		return nil, fmt.Errorf("copy template: %w", err)
	}
	return db, nil
}

// Drop removes the template. The copies stay.
func (t *Template) Drop(ctx context.Context) error {
	err := errors.Join(removeTemplate(ctx, t.life, t.name), t.life.Close(ctx))
	if err != nil {
		return fmt.Errorf("drop template %s: %w", t.name, err)
	}
	return nil
}

func removeTemplate(ctx context.Context, conn *pgx.Conn, name string) error {
	return executeOn(ctx, conn, fmt.Sprintf("DROP DATABASE IF EXISTS %s WITH (FORCE)", name), fmt.Sprintf("DROP ROLE IF EXISTS %s", name))
}
