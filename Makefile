# Needs Go (the version in go.mod or newer); test and bench-pg need PostgreSQL 15 and PgBouncer as well, test
# Chromium too, and install them as root on Debian (Chromium) and Ubuntu; test-peers needs Node 20. The race detector needs a C compiler:
# without one the tests run without it, unless RACE=-race demands it.
GO ?= go
RACE ?= $(if $(shell command -v $(firstword $(shell $(GO) env CC))),-race)
export CGO_ENABLED = 0

GOTEST = CGO_ENABLED=$(if $(RACE),1,0) $(GO) test $(RACE)

.PHONY: help build demo test test-peers check fuzz bench bench-pg soak soak-pg soak-model soak-faults clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

build: ## bin/undolog and the example server bin/payments
	$(GO) build -o bin/ ./cmd/undolog ./examples/payments

demo: build ## one charge sent twice, a killed agent, a killed gateway: what UndoLog does about it
	$(GO) run ./examples/demo --bin bin

test: ## everything but the Node peers, with the race detector
	@[ -n "$(RACE)" ] || echo "no C compiler: the tests run without the race detector"
	$(GOTEST) -timeout 30m ./...

test-peers: ## the same answers through the gateway as directly: npm's servers and conformance tests, TypeScript and Go clients
	cd peers && npm ci --no-audit --no-fund
	cd peers/conformance && npm ci --no-audit --no-fund
	$(GO) test -tags peers -count=1 ./peers/...

check: ## gofmt, vet, staticcheck, go generate and go mod tidy without a difference
	./scripts/check

fuzz: ## every fuzz target for 60 s
	./scripts/fuzz 60s

bench: build ## one table of figures, each as a ratio to a baseline of the same run
	$(GO) run ./bench -bin bin

bench-pg: ## the same for PostgreSQL: a cluster of its own, beside pgbench, PgBouncer, SQLite and DBOS
	./scripts/postgres
	$(GO) run ./bench/pg

soak: ## the crash rounds of the tests, many more of them
	UNDOLOG_SOAK=1 $(GOTEST) -count=1 -timeout 60m -run 'Crash|Processes' ./e2e/...

soak-pg: ## PostgreSQL stopped 500 times under callers, connections cut at every byte, and the rest of e2e/chaos for longer
	./scripts/postgres
	$(GOTEST) -count=1 -timeout 120m ./e2e/chaos -args -soak

# The random tests print what they began with; the same number makes the same runs again.
SEED ?= $(shell date +%s)
HISTORIES ?= 10000
TRIALS ?= 1000

soak-model: ## random histories of calls, people, clocks and crashes against the model of the design: HISTORIES, SEED
	@echo "SEED=$(SEED)"
	$(GO) test -v -count=1 -timeout 120m ./e2e/proof -run Histories_onSQLite -rapid.checks=$(HISTORIES) -rapid.seed=$(SEED)

soak-faults: ## real processes under random faults, judged by the ledger at the tool: TRIALS, SEED of the first
	@echo "SEED=$(SEED)"
	$(GO) test -count=1 -timeout 120m ./e2e -run Injected -args -trials $(TRIALS) -trial-seed $(SEED)

clean: ## remove what was built
	rm -rf bin
