# The commands of this project. `make help` lists them. Rooms add their own targets in make/*.mk.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build

GO       ?= go
BIN      ?= bin
DIR      ?= $(BIN)
FUZZTIME ?= 30s
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  := -s -w -X byre/cli.Version=$(VERSION)

# Packages whose tests run many goroutines: these also run under the race detector (short tests).
# make/*.mk may append.
RACE_PKGS :=
# Targets that `make test` also runs; make/*.mk may append.
TEST_TARGETS :=

include $(sort $(wildcard make/*.mk))

.PHONY: help build links run tools test lint vet-other unit race fuzz clean

help: ## list the targets
	@grep -hE '^[a-z][a-z0-9-]*:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | sort | column -t -s $$'\t'

build: ## build bin/byre: one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/byre ./cmd/byre

links: build ## give the binary the names of the tools it replaces, in DIR
	@mkdir -p '$(DIR)'; for n in qemu-img qemu-io; do \
	  ln -sfn "$$(realpath --relative-to='$(DIR)' $(BIN)/byre)" '$(DIR)'/$$n; echo '$(DIR)'/$$n; done

run: build ## the main job on real input: compressed qcow2 of a file tree -> raw, compared, listed
	scripts/demo.sh $(BIN)/byre

tools: ## install the real tools that the tests compare with (as root on Debian; otherwise say what is missing)
	scripts/oracles.sh

test: tools lint unit race vet-other $(TEST_TARGETS) ## everything that must hold before a change lands

lint: ## gofmt, go vet, staticcheck
	@bad=$$(gofmt -l $$(git ls-files '*.go' 2>/dev/null || find . -name '*.go')); \
	  [ -z "$$bad" ] || { echo "not gofmt-ed:"; echo "$$bad"; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

unit: ## all tests
	$(GO) test -timeout 30m ./...

race: ## the concurrent packages under the race detector
	$(if $(strip $(RACE_PKGS)),CGO_ENABLED=1 $(GO) test -race -short -timeout 30m $(sort $(RACE_PKGS)),@echo "no concurrent package yet")

vet-other: ## the other systems must build, tests too
	GOOS=darwin $(GO) vet ./...
	GOOS=windows $(GO) vet ./...

fuzz: ## every fuzz target for FUZZTIME (PKG=./dir limits it)
	scripts/fuzz.sh '$(FUZZTIME)' '$(or $(PKG),./...)'

clean: ## remove what was built here
	rm -rf $(BIN)
