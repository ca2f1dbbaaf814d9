# What a developer and a build machine run. It needs Go, Node.js (the stand-ins that
# the tests run against) and git; a C compiler for the race detector.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
ifeq ($(MAKELEVEL),0)
MAKEFLAGS   += --jobs=3 # what a target needs is made side by side; much of it waits
endif

GO       ?= go
ARGS     ?=
SEED     ?= 1
FUZZTIME ?= 5s
CHECKS   ?= 20000
STATES   ?= 100000000
PLANS    ?= 1000000
ROUNDS   ?= 1

# What a build is stamped with. Two builds of one commit with one Go are the same, byte for byte.
VERSION  ?=
COMMIT   ?= $(shell git rev-parse HEAD 2>/dev/null)$(shell git status --porcelain 2>/dev/null | grep -q . && echo +changes)
OUTPUT   ?= bin/alertworker
IMAGE    ?= alertworker:$(or $(VERSION),dev)
race      = $(shell command -v "$$($(GO) env CC)" >/dev/null && echo -race)

# What only computes leaves processors to the tests beside it, which mostly wait.
low      := nice -n 10

# Compiles packages and their tests. The compiler needs a quarter less of a processor if it collects garbage less often.
compile  := GOGC=400 $(GO) list -export -test

.PHONY: help run test race compiled thorough deploy processes lint vulnerabilities azure fuzz properties worlds planted model simulate \
	bench ci build image keda

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 8

run: ## see it work without Azure; ARGS="--for 30s" passes flags, ARGS=--help lists them
	$(GO) run ./cmd/alertworker local $(ARGS)

# The emulators. Without npm what needs them fails, or is skipped: see CONTRIBUTING.md.
node_modules/.package-lock.json: package-lock.json
	@if [ "$${ALERTWORKER_SKIP_NODE:-}" != 1 ] && command -v npm >/dev/null; then npm ci --no-audit --no-fund; fi

# Those that take longest begin first. They wait for others most of the time, so more packages run than there are
# processors.
longest  := $(addprefix ./,cmd/alertworker internal/telemetry/eventhubs internal/lease/bloblease internal/lab/e2e \
	internal/worker internal/throttle internal/ops/admin)
packages := 6

# With -short what chance decides is tried a few times, and what takes minutes is left out: see thorough and processes.
# What tests are made of is compiled before, beside npm, so that it is in nobody's way. Vetting is lint's.
test: ## the tests, what is left to chance a few times; not with the race detector, which takes three times as long
race: ## the same with the race detector
race: detector = $(race)
test race: node_modules/.package-lock.json compiled
	$(GO) test $(detector) -short -vet=off -p $(packages) -timeout 20m $(longest) ./...

compiled:
	@$(if $(race),,echo "no C compiler: there is no race detector";) \
	set -x; $(compile) $(detector) ./... >/dev/null

# Packages in which -short and the race detector make no test smaller have done all they can in make test.
larger = $(shell grep -rlE 'testing\.Short|pgregory\.net/rapid|build !race' --include='*_test.go' cmd internal | \
	xargs -n 1 dirname | grep -Ev '^internal/lab/(e2e|bicep)$$' | sort -u | sed 's,^,./,')
thorough: node_modules/.package-lock.json compiled ## what make test makes smaller, with full budgets
	$(GO) test -vet=off -p $(packages) -timeout 20m $(filter $(longest),$(larger)) $(larger)

# With thorough these are all packages.
others = $(filter-out $(larger),$(patsubst alertworker/%,./%,$(shell $(GO) list ./...)))
others: node_modules/.package-lock.json compiled
	$(GO) test -short -vet=off -p $(packages) -timeout 20m $(filter $(longest),$(others)) $(others)

# Go's cache of results does not see what these tests read, which is outside their module: hence -count=1.
deploy: GO := $(low) $(GO)
deploy: ## the tests of deploy, and of tools
	$(GO) -C tools test -vet=off -count=1 -timeout 10m ./...

processes: node_modules/.package-lock.json ## whole processes, in all ways that tests know, ROUNDS=1 SEED=1; KEDA if make keda has built it
	$(GO) test $(race) -vet=off -v -timeout 24h ./internal/lab/e2e -rounds $(ROUNDS) -seed $(SEED)

# A test asks it about our checkpoints. The first build takes some minutes, later ones take
# seconds. Two files of KEDA's module are laid over a directory here, because all of their package takes far longer.
keda: ## bin/keda, KEDA's own Event Hubs scaler
	@mkdir -p bin; rm -f bin/keda; cd tools/keda; $(GO) mod download github.com/kedacore/keda/v2; \
	from=$$($(GO) list -m -f '{{.Dir}}' github.com/kedacore/keda/v2)/pkg/scalers; \
	printf '{"Replace": {"%s": "%s", "%s": "%s"}}' "$$PWD/scalers/scaler.go" "$$from/scaler.go" \
		"$$PWD/scalers/azure_eventhub_scaler.go" "$$from/azure_eventhub_scaler.go" >../../bin/keda.json; \
	set -x; $(GO) build -overlay ../../bin/keda.json -o ../../bin/keda .

# tools is a module of its own, so that go.mod lists only what the worker needs. So are
# tools/keda, which is slow to build, and tools/simulate, which needs a runtime of WebAssembly.
lint: GO := $(low) $(GO)
lint: export GOGC := 400
lint: ## formatting, go vet, staticcheck, a tidy go.mod, the workflows
	@files=$$(gofmt -l cmd internal tools); [ -z "$$files" ] || { echo "run gofmt -w on:"; echo "$$files"; exit 1; }
	$(GO) -C tools build -o ../bin/ honnef.co/go/tools/cmd/staticcheck github.com/rhysd/actionlint/cmd/actionlint
	bin/actionlint -shellcheck= -pyflakes= .github/workflows/*.yaml
	for module in . tools; do (cd $$module; set -x; \
		$(GO) vet ./...; $(low) $(CURDIR)/bin/staticcheck ./...; $(GO) mod tidy -diff); done
	$(GO) -C tools/keda mod tidy -diff
	cd tools/simulate; $(GO) vet ./...; $(low) $(CURDIR)/bin/staticcheck ./...; $(GO) mod tidy -diff

# It asks https://vuln.go.dev, so it is no part of ci. It reports what the binary calls, in dependencies and in Go itself.
vulnerabilities: ## known vulnerabilities in what the binary is built from; it needs the internet
	$(GO) run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./...

# Bicep evaluates what azd would deploy, without Azure. It is no part of Go or Node: https://github.com/Azure/bicep/releases.
azure: GO := $(low) $(GO)
azure: node_modules/.package-lock.json ## lint deploy/azure and test what it would deploy, if bicep is on PATH
	@if command -v bicep >/dev/null; then set -x; $(GO) test -vet=off -timeout 20m ./internal/lab/bicep; else echo "no bicep on PATH: deploy/azure is not checked"; fi

# go test -list prints the names of a package's targets, then a line with the package.
fuzz: ## every fuzz target for FUZZTIME=5s
	@$(GO) test -list '^Fuzz' ./... | awk '/^Fuzz/ { names[n++] = $$1 } $$1 == "ok" { while (n > 0) print $$2, names[--n] }' | \
	while read -r package target; do \
		echo "$$target $$package"; \
		$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5s -timeout 5m "$$package"; \
	done

# In make test and make ci they draw the same each time: what other draws find is no fault of the change at hand either.
properties: ## what tests with rapid say after CHECKS=20000 random draws each
	$(GO) test -vet=off -timeout 6h $(shell grep -rl pgregory.net/rapid --include='*_test.go' cmd internal | \
		xargs -n 1 dirname | sort -u | sed 's,^,./,') -args -rapid.seed=0 -rapid.checks=$(CHECKS) $(ARGS)

# Some are in make test, and some thousand in make ci.
worlds: ## random worlds for PLANS=1000000 plans; it prints how to play one again with ARGS
	GOGC=400 $(low) $(GO) test ./internal/worker -run '^TestWorlds$$' -v -timeout 24h -args -worlds.plans=$(PLANS) -worlds.first=0 $(ARGS)

# Bugs that the worker had, one after the other.
planted: ## whether the random worlds find each planted bug within 10,000 plans
	$(GO) test ./internal/lab/planted -run '^TestWorlds$$' -v -timeout 24h -args -planted.within=10000 $(ARGS)

# A small part of it is in make test.
# Natively TestSimulation searches: SEEDS=1000 FROM=1 go test ./cmd/alertworker -run Simulation -timeout 0
simulate: ## the story of a simulated world, the same each time; SEED=1; ARGS=--help lists flags
	@$(GO) -C tools/simulate run . -seed $(SEED) $(ARGS)

model: ## search the gate's protocol, crash by crash, for STATES=100000000 states
	$(GO) test ./internal/throttle -run '^TestModel' -v -timeout 6h -args -model.states=$(STATES)

bench: node_modules/.package-lock.json ## the worker beside a bare loop, in CPU time, and a storm for people; ARGS="-benchtime 1x" is quicker
	$(GO) test ./internal/lab/bench -run '^$$' -timeout 1h -bench 'Throughput|People' -benchtime 5x $(ARGS)

# Tests run the seeds and corpora of the fuzz targets. What fuzzing finds beyond them is no fault of the change at hand,
# so it runs on a schedule, not here.
# What only computes runs beside the tests, while they wait. The race detector has a job of its own in the workflow CI:
# compiling with it takes as long as all of this.
ci: PLANS = 5000
ci: ARGS = -worlds.first=1
ci: others thorough lint deploy azure worlds ## what a change has to pass: the tests, thorough, lint, deploy, azure, worlds, a short run
	$(MAKE) run ARGS="--for 8s --window 3s"

build: ## bin/alertworker, static; VERSION=1.2.3 for a release
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '-s -w -X alertworker/internal/build.version=$(VERSION) -X alertworker/internal/build.commit=$(COMMIT)' -o $(OUTPUT) ./cmd/alertworker

image: ## the image IMAGE=alertworker:dev, with docker, podman or buildah, whichever works here
	@for builder in docker podman buildah; do if $$builder info >/dev/null 2>&1; then break; fi; builder=; done; \
	[ "$$builder" ] || { echo "no image: neither docker nor podman nor buildah works here"; exit 1; }; \
	set -x; $$builder build --build-arg VERSION='$(VERSION)' --build-arg COMMIT='$(COMMIT)' -t '$(IMAGE)' $(ARGS) .
