package pgcluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Database is a database that belongs to a role of its own, which is no superuser and does not bypass row-level
// security.
type Database struct {
	Name     string // of the database and of its owner
	Password string
	URL      string // as its owner
	AdminURL string // of the same database, as the superuser
}

// CreateDatabase makes an empty database and its owner on the server that the URL names as a superuser.
func CreateDatabase(ctx context.Context, admin string) (*Database, error) {
	db, err := newAddresses(admin)
	if err != nil {
		return nil, err
	}
	if err := execute(ctx, admin, createRole(db), fmt.Sprintf("CREATE DATABASE %s OWNER %s", db.Name, db.Name)); err != nil {
		return nil, fmt.Errorf("create database: %w", err)
	}
	return db, nil
}

// newAddresses names a database that is not there yet.
func newAddresses(admin string) (*Database, error) {
	return addresses(admin, "undolog_"+strings.ToLower(rand.Text()[:12]))
}

func addresses(admin, name string) (*Database, error) {
	u, err := url.Parse(admin)
	if err != nil {
		return nil, fmt.Errorf("parse address of server: %w", err)
	}
	db := &Database{Name: name, Password: rand.Text()}
	u.Path = "/" + db.Name
	db.AdminURL = u.String()
	u.User = url.UserPassword(db.Name, db.Password)
	db.URL = u.String()
	return db, nil
}

func createRole(db *Database) string {
	return fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'", db.Name, secretOf(db.Password))
}

// Drop ends the connections to the database and removes it and its owner from the server.
func (db *Database) Drop(ctx context.Context, admin string) error {
	err := execute(ctx, admin,
		fmt.Sprintf("DROP DATABASE %s WITH (FORCE)", db.Name),
		fmt.Sprintf("DROP ROLE %s", db.Name))
	if err != nil {
		return fmt.Errorf("drop database %s: %w", db.Name, err)
	}
	return nil
}

func execute(ctx context.Context, url string, statements ...string) (err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	return executeOn(ctx, conn, statements...)
}

func executeOn(ctx context.Context, conn *pgx.Conn, statements ...string) error {
	for _, s := range statements {
		if _, err := conn.Exec(ctx, s); err != nil {
			return err
		}
	}
	return nil
}
