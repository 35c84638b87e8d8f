# Every target says what it does behind ##, which is what `make help` lists.
.POSIX:
.SUFFIXES:
.PHONY: help run demo test bench build xcaddy lint fmt ci clean

GO = go
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

run: build ## serve the sample order service behind the gateway, and say what to try
	@$(GO) build -o .run/orders ./examples/orders
	@scripts/run.sh

demo: ## tell the gateway's story by itself, and check it
	@$(GO) run ./examples/demo

test: ## run every test; those of PostgreSQL use the one that is installed
	$(GO) test -race -count=1 -timeout 15m ./...

bench: ## measure what the gateway costs, and write docs/benchmarks.md (25 minutes)
	$(GO) run ./bench

build: ## build ./caddy by plain go build
	$(GO) build -o caddy ./cmd/caddy

xcaddy: ## build ./caddy by xcaddy
	./xcaddy.sh

lint: ## go vet and staticcheck
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

fmt: build ## format Go files and Caddyfiles
	gofmt -w .
	find . -name Caddyfile -not -path './.run/*' -exec ./caddy fmt --overwrite {} \;

ci: ## everything that is checked before a change is accepted
	.ci/run

clean: ## remove what was built, and the state of make run
	rm -rf caddy .run orders.jsonl
