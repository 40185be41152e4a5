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

// effectRows are the columns of many rows of one tenant.
type effectRows struct {
	ids                                        []pgtype.UUID
	places                                     []int64
	callers, runHashes, leases, timeouts       []pgtype.Int8
	ats                                        []pgtype.Timestamptz
	generations                                []int32
	signatures, windows, digests, completes    [][]byte
	principals, sessions, traces               []string
	servers, tools, tiers, rules, scopes       []string
	keys, runs, occurrences, policies, sources []string
	lookalikes, owners                         []string
	arguments                                  [][]byte
	sure                                       []bool
}

// add puts a row in; place is its place among the effects of the transaction.
func (c *effectRows) add(row *effectRow, place int) {
	r := row.record
	c.ids = append(c.ids, pgtype.UUID{Bytes: row.id, Valid: true})
	c.places = append(c.places, int64(place))
	c.callers = append(c.callers, caller(r))
	c.runHashes = append(c.runHashes, runHash(r.Run))
	c.leases = append(c.leases, micros(row.lease))
	c.timeouts = append(c.timeouts, micros(row.timeout))
	c.ats = append(c.ats, timestamp(row.at))
	c.generations = append(c.generations, int32(r.Generation))
	c.signatures = append(c.signatures, blob(r.Signature))
	c.windows = append(c.windows, blob(r.Window))
	c.digests = append(c.digests, r.ArgsDigest[:])
	c.completes = append(c.completes, r.Complete[:])
	c.principals = append(c.principals, text(r.Principal))
	c.sessions = append(c.sessions, text(r.Session))
	c.traces = append(c.traces, text(r.Trace))
	c.servers = append(c.servers, text(r.Server))
	c.tools = append(c.tools, text(r.Tool))
	c.tiers = append(c.tiers, string(r.Tier))
	c.rules = append(c.rules, string(r.Rule))
	c.scopes = append(c.scopes, text(r.Scope))
	c.keys = append(c.keys, text(r.Key))
	c.runs = append(c.runs, text(r.Run))
	c.occurrences = append(c.occurrences, text(r.Occurrence))
	c.policies = append(c.policies, text(r.Policy))
	c.sources = append(c.sources, text(r.Source))
	c.lookalikes = append(c.lookalikes, text(r.LookalikeOf))
	c.owners = append(c.owners, text(r.Owner))
	c.arguments = append(c.arguments, r.Arguments)
	c.sure = append(c.sure, row.sure)
}

// insertEffects claims what can be claimed, and returns what it was. That a signature is known the constraint says.
// A call that is not sure is inserted only when no look-alike is known either: most calls are new, and to ask first
// would be a round trip for each. The questions are scalar on purpose: each is a look into an index for each row,
// under every plan, where an anti-join may become a scan of the table while statistics are young.
var (
	insertEffects = intoEffect + `
	FROM (SELECT $1::text AS tenant) o
	CROSS JOIN unnest(
	  $3::uuid[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::timestamptz[], $10::integer[],
	  $11::bytea[], $12::bytea[], $13::bytea[], $14::bytea[],
	  $15::text[], $16::text[], $17::text[], $18::text[], $19::text[], $20::text[], $21::text[], $22::text[],
	  $23::text[], $24::text[], $25::text[], $26::text[], $27::text[], $28::text[], $29::text[],
	  $30::bytea[], $31::boolean[])
	  AS n(id, place, caller, run_hash, lease, timeout, at, generation,
	       signature, window_signature, args_digest, complete,
	       principal, session, trace, server, tool, tier, rule, scope,
	       key, run, occurrence, policy, source, lookalike_of, owner,
	       arguments, sure)
	WHERE n.sure OR ` + noKeyed + ` AND (n.rule = 'window' OR ` + noUnkeyed + `)` + ifFirst

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

// effectValues are the columns of n and their types, from $3 on.
var effectValues = []struct{ name, of string }{
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

// insert returns the statement for one tenant's rows; won is told of each that was inserted.
func (c *effectRows) insert(tenant string, now pgtype.Timestamptz, won func(id uuid.UUID, seq int64, at time.Time)) statement {
	return statement{
		sql: insertEffects,
		args: []any{
			text(tenant), now, flat(c.ids), c.places, flat(c.callers), flat(c.runHashes), flat(c.leases), flat(c.timeouts), flat(c.ats),
			c.generations, flat(c.signatures), flat(c.windows), flat(c.digests), flat(c.completes),
			c.principals, c.sessions, c.traces, c.servers, c.tools, c.tiers, c.rules, c.scopes,
			c.keys, c.runs, c.occurrences, c.policies, c.sources, c.lookalikes, c.owners,
			flat(c.arguments), c.sure,
		},
		read: readEffects(won),
	}
}

// insert returns the statement for this row, which is insertEffect or alone.
func (row *effectRow) insert(sql, tenant string, now pgtype.Timestamptz, won func(id uuid.UUID, seq int64, at time.Time)) statement {
	r := row.record
	return statement{
		sql: sql,
		args: []any{
			text(tenant), now, pgtype.UUID{Bytes: row.id, Valid: true}, int64(0), caller(r), runHash(r.Run), micros(row.lease),
			micros(row.timeout), timestamp(row.at), int32(r.Generation), blob(r.Signature), blob(r.Window), r.ArgsDigest[:], r.Complete[:],
			text(r.Principal), text(r.Session), text(r.Trace), text(r.Server), text(r.Tool), string(r.Tier), string(r.Rule), text(r.Scope),
			text(r.Key), text(r.Run), text(r.Occurrence), text(r.Policy), text(r.Source), text(r.LookalikeOf), text(r.Owner),
			[]byte(r.Arguments), row.sure,
		},
		read: readEffects(won),
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

// flat is a column as pgx encodes it without reflection.
func flat[T any](column []T) pgtype.FlatArray[T] { return column }

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
