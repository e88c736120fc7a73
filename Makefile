# Thin: names the commands. `make help` lists them.
.DEFAULT_GOAL := help
CARGO ?= cargo
SHARDD := target/demo/maru-shardd
TRACE ?=

.PHONY: help demo test fast build lint unit loom fuzz acceptance bench tidy

help: ## lists the commands
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## builds the server, runs it with engine-like workers, ends with a table (TRACE=file replays a trace)
	$(CARGO) build --locked --profile demo -p maru-shardd
	$(SHARDD) demo $(if $(TRACE),--trace $(TRACE))

test: ## runs every check and test; installs what it needs
	bash .ci/test full

fast: ## runs the checks that take a minute: format, lints, docs, tidy, unit tests
	bash .ci/test fast

build: ## builds the server and the benchmarks, optimised
	$(CARGO) build --locked --release -p maru-shardd -p maru-bench

lint: ## checks format, lints, docs and the tidy rules
	bash .ci/test lint

unit: ## runs the tests of the whole workspace
	bash .ci/test unit

loom: ## checks every interleaving of the mailbox
	bash .ci/test loom

fuzz: ## fuzzes decode and handle, SECONDS_EACH seconds each (default 60)
	bash .ci/test fuzz

acceptance: ## replays the conversation trace and checks hit ratios, bytes and books
	bash .ci/test acceptance

bench: build ## measures this machine's limits and the control path
	target/release/maru-bench limits
	target/release/maru-bench control

tidy: ## checks file sizes, lib.rs, dependency arrows and leftovers
	python3 .ci/tidy.py
