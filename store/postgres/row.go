package postgres

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"regexp"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/undolog/undolog/effect"
)

// effectRow is an effect on its way into the log: its first claim, or a finished read.
type effectRow struct {
	id      uuid.UUID
	record  *effect.Record
	lease   time.Duration // zero: held by the owner's heart
	timeout time.Duration // zero: none
	at      time.Time     // when it was claimed; zero: when it is inserted
	sure    bool          // what is known of the call was read: only the generation decides
}

// compare is the order in which rows are inserted by everybody, so that no two groups wait for each other.
func (r *effectRow) compare(s *effectRow) int {
	if c := bytes.Compare(r.record.Signature[:], s.record.Signature[:]); c != 0 {
		return c
	}
	return bytes.Compare(r.id[:], s.id[:])
}

// insertEffects claims what can be claimed, and returns what it was. That a signature is known the constraint says.
// A call that is not sure is inserted only when no look-alike is known either: most calls are new, and to ask first
// would be a round trip for each. The questions are scalar on purpose: each is a look into an index for each row,
// under every plan, where an anti-join may become a scan of the table while statistics are young.
var (
	insertEffects = intoEffect + `
	FROM (SELECT $1::text AS tenant) o
	CROSS JOIN unnest($3::undolog.new_effect[]) AS n
	WHERE n.sure OR ` + noKeyed + ` AND (n.rule = 'window' OR ` + noUnkeyed + `)` + ifFirst

	// callInsertEffects does the same, of any tenant, with a plan that the server has kept.
	callInsertEffects = `SELECT id, seq, created_at FROM undolog.insert_effects($1::text, $2::timestamptz, $3::undolog.new_effect[])`

	// insertEffect is the same for one row, which costs the server half as much.
	insertEffect = oneEffect(intoEffect + `
	FROM (SELECT $1::text AS tenant) o
	WHERE n.sure OR ` + noKeyed + ` AND (n.rule = 'window' OR ` + noUnkeyed + `)` + ifFirst)

	// The others are whole transactions: they say themselves what queueTenant says before others. Each asks what
	// its row depends on, because a question costs as much to make ready as to ask.
	insertSureAlone = oneEffect(intoEffect + inOwnName + `
	WHERE n.sure IS NOT NULL` + ifFirst)
	insertWindowAlone = oneEffect(intoEffect + inOwnName + `
	WHERE ` + afterwards(`n.sure OR `+noKeyed) + ifFirst)
	insertKeyedAlone = oneEffect(intoEffect + inOwnName + `
	WHERE ` + afterwards(`n.sure OR `+noKeyed+` AND `+noUnkeyed) + ifFirst)
)

// intoEffect inserts rows n of the tenant of o.
const intoEffect = `
	INSERT INTO undolog.effect (
	  id, seq, caller, run_hash, created_at, lease_until, timeout_at, generation, signature, window_signature,
	  args_digest, complete, tenant, principal, session, trace, server, tool, tier, rule, scope,
	  key, run, occurrence, policy, source, lookalike_of, state, owner, arguments)
	SELECT
	  n.id, (pg_current_xact_id()::text::bigint << 16) + n.place, n.caller, n.run_hash,
	  COALESCE(n.at, $2::timestamptz, now()),
	  COALESCE(n.at, $2::timestamptz, now()) + n.lease * interval '1 microsecond',
	  COALESCE(n.at, $2::timestamptz, now()) + n.timeout * interval '1 microsecond',
	  n.generation, n.signature, n.window_signature,
	  n.args_digest, n.complete, o.tenant, n.principal, n.session, n.trace, n.server, n.tool,
	  n.tier::undolog.tier, n.rule::undolog.rule, n.scope,
	  n.key, n.run, n.occurrence, n.policy, n.source, n.lookalike_of, 'claimed', n.owner, n.arguments`

const (
	// noKeyed says that no equal call is known by a key or a run.
	noKeyed = `(
	    SELECT true FROM undolog.effect e
	    WHERE e.window_signature = n.window_signature AND e.rule IN ('key', 'run') LIMIT 1) IS NULL`
	// noUnkeyed says that none is known without.
	noUnkeyed = `(SELECT true FROM undolog.effect e WHERE e.signature = n.window_signature LIMIT 1) IS NULL`
	ifFirst   = `
	ON CONFLICT DO NOTHING
	RETURNING id, seq, created_at`
)

// effectValues are the attributes of n, undolog.new_effect, in their order, which are also parameters from $3 on.
var effectValues = []attribute{
	{"id", "uuid"}, {"place", "bigint"}, {"caller", "bigint"}, {"run_hash", "bigint"}, {"lease", "bigint"}, {"timeout", "bigint"},
	{"at", "timestamptz"}, {"generation", "integer"},
	{"signature", "bytea"}, {"window_signature", "bytea"}, {"args_digest", "bytea"}, {"complete", "bytea"},
	{"principal", "text"}, {"session", "text"}, {"trace", "text"}, {"server", "text"}, {"tool", "text"}, {"tier", "text"},
	{"rule", "text"}, {"scope", "text"}, {"key", "text"}, {"run", "text"}, {"occurrence", "text"}, {"policy", "text"},
	{"source", "text"}, {"lookalike_of", "text"}, {"owner", "text"}, {"arguments", "bytea"}, {"sure", "boolean"},
}

var columnOfN = regexp.MustCompile(`\bn\.\w+`)

// oneEffect is a statement whose only row n is parameters: that is no table to the server, which need not scan it.
func oneEffect(sql string) string {
	return columnOfN.ReplaceAllStringFunc(sql, func(column string) string {
		for i, v := range effectValues {
			if "n."+v.name == column {
				return fmt.Sprintf("$%d::%s", i+3, v.of)
			}
		}
		panic("no parameter for " + column)
	})
}

// alone is the statement by which this row is a whole transaction.
func (row *effectRow) alone() string {
	switch r := row.record; {
	case row.sure || r.Rule == effect.RuleNone:
		return insertSureAlone
	case r.Rule == effect.RuleWindow:
		return insertWindowAlone
	}
	return insertKeyedAlone
}

// insert returns the statement for this row, which is insertEffect or alone.
func (row *effectRow) insert(sql, tenant string, now pgtype.Timestamptz, won func(id uuid.UUID, seq int64, at time.Time)) statement {
	return statement{sql: sql, args: append([]any{text(tenant), now}, row.values(0)...), read: readEffects(won)}
}

// insertAll returns the statement for many rows of one tenant; won is told of each that was inserted.
func (d *Driver) insertAll(effects *rows, tenant string, now pgtype.Timestamptz, won func(id uuid.UUID, seq int64, at time.Time)) statement {
	sql := insertEffects
	if !d.mode.isPrepared() {
		sql = callInsertEffects
	}
	return statement{sql: sql, args: []any{text(tenant), now, effects}, read: readEffects(won)}
}

// values are those of effectValues; place is its place among the effects of the transaction.
func (row *effectRow) values(place int) []any {
	r := row.record
	return []any{
		pgtype.UUID{Bytes: row.id, Valid: true}, int64(place), caller(r), runHash(r.Run), micros(row.lease),
		micros(row.timeout), timestamp(row.at), int32(r.Generation), blob(r.Signature), blob(r.Window), r.ArgsDigest[:], r.Complete[:],
		text(r.Principal), text(r.Session), text(r.Trace), text(r.Server), text(r.Tool), string(r.Tier), string(r.Rule), text(r.Scope),
		text(r.Key), text(r.Run), text(r.Occurrence), text(r.Policy), text(r.Source), text(r.LookalikeOf), text(r.Owner),
		[]byte(r.Arguments), row.sure,
	}
}

func readEffects(won func(id uuid.UUID, seq int64, at time.Time)) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var id pgtype.UUID
		var seq int64
		var at time.Time
		for rows.Next() {
			if err := rows.Scan(&id, &seq, &at); err != nil {
				return err
			}
			won(id.Bytes, seq, at.UTC())
		}
		return nil
	}
}

// caller hashes who writes where, to find a caller's writes by a small number; NULL for reads, which are
// none. Who looks by it compares the names as well.
func caller(r *effect.Record) pgtype.Int8 {
	if r.Tier == effect.TierRead {
		return pgtype.Int8{}
	}
	return pgtype.Int8{Int64: hash(r.Tenant, r.Principal, r.Server), Valid: true}
}

func runHash(run string) pgtype.Int8 {
	if run == "" {
		return pgtype.Int8{}
	}
	return pgtype.Int8{Int64: hash(run), Valid: true}
}

// hash makes a small number of names. What it is stored for must not change.
func hash(names ...string) int64 {
	h := fnv.New64a()
	for _, s := range names {
		var length [4]byte
		binary.BigEndian.PutUint32(length[:], uint32(len(s)))
		h.Write(length[:])
		h.Write([]byte(s))
	}
	return int64(h.Sum64())
}

// blob is a digest as the database has it; nil, for NULL, when it is zero.
func blob(d [32]byte) []byte {
	if d == [32]byte{} {
		return nil
	}
	return d[:]
}

// parseID reads the id of an effect; false when it can be none.
func parseID(s string) (pgtype.UUID, bool) {
	if len(s) != 36 {
		return pgtype.UUID{}, false
	}
	id, err := uuid.Parse(s)
	return pgtype.UUID{Bytes: id, Valid: err == nil}, err == nil
}
