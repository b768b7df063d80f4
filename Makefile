# Kvik's front door. `make help` lists what there is.
#
# One non-recursive build: mk/variants.mk says how each variant compiles, mk/build.mk how sources
# become archives and the server, mk/test.mk how tests are built and run. Everything made lies in
# $(BUILD)/<variant>/. `V=<variant>` chooses the variant of any target: make V=asan, make test-unit
# V=tsan. Targets that need several variants call this file again with another V.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
.SUFFIXES:

PYTHON := /usr/bin/python3
BUILD ?= build
# In one spelling: the targets that compilers name in .d files must be those of the rules.
override BUILD := $(patsubst $(CURDIR)/%,%,$(abspath $(BUILD)))
V ?= release
PREFIX ?= /usr/local
DESTDIR ?=

.PHONY: all
all: server

include mk/variants.mk
include mk/build.mk
include mk/pgo.mk
include mk/test.mk
include mk/bench_mem.mk
include mk/lib.mk

.PHONY: run debug asan tsan install format lint clean deps help ci

run:
	@tools/install-deps build
	@$(MAKE) --no-print-directory -j2 V=release server
	@exec $(BUILD)/release/kvik-server $(ARGS)

debug asan tsan:
	@$(MAKE) --no-print-directory V=$@ server

install:
	@$(MAKE) --no-print-directory V=release server
	@$(MAKE) --no-print-directory install-lib
	install -D -m 755 $(BUILD)/release/kvik-server $(DESTDIR)$(PREFIX)/bin/kvik-server
	ln -sf kvik-server $(DESTDIR)$(PREFIX)/bin/kvik-check
	install -D -m 644 LICENSE $(DESTDIR)$(PREFIX)/share/doc/kvik/LICENSE

# The sources that clang-format owns: all C but what a generator writes.
C_FILES = $(filter-out src/cmd/table.c,$(wildcard src/*/*.[ch] tests/*/*.[ch] tests/*/*/*.[ch] examples/*/*.c))

format:
	clang-format -i $(C_FILES)

lint:
	@$(PYTHON) tools/lint.py --build $(BUILD)

clean:
	rm -rf $(BUILD)

deps:
	@tools/install-deps build test fuzz coverage

ci:
	.ci/run

help:
	@echo 'make                 build the release variant: $(BUILD)/release/kvik-server'
	@echo 'make run [ARGS=..]   install missing packages, build, start the server on port 6379'
	@echo 'make test            install, build, run everything; last line: N passed, N failed'
	@echo 'make test-matrix     what test leaves out for want of time: sanitizers and threads where they matter least'
	@echo 'make debug|asan|tsan build another variant of the server'
	@echo 'make pgo             train a server, build $(BUILD)/pgo/kvik-server with what it counted'
	@echo 'make test-unit       unit tests; F=mem: of one folder; T=test_glob: of one file'
	@echo 'make test-server     server tests (pytest) with 1 and 4 threads; K=expr selects'
	@echo 'make test-budget     instructions of fast paths, no locked ones among them'
	@echo 'make test-compare    random commands against the installed redis-server'
	@echo 'make test-clients    node and hiredis programs'
	@echo 'make fuzz T=resp TIME=60   search with libFuzzer; T=all: each target in turn'
	@echo 'make bench           measure against the installed redis-server'
	@echo 'make bench-types     hashes, lists, sets, sorted sets likewise'
	@echo 'make bench-messages  PUBLISH, transactions, waiting, scripts, tracking, eviction likewise'
	@echo 'make bench-persist   saving and loading likewise'
	@echo 'make bench-mem       the allocator against others; QUICK=1: less than 40 seconds'
	@echo 'make lib             the memory layer for other programs: $(BUILD)/lib (docs/mem-library.md)'
	@echo 'make test-library    its header, archive and example'
	@echo 'make bench-evict     hit rates of the eviction policies'
	@echo 'make bench-build     the optimisations against each other'
	@echo 'make bench-io        the backends of the event loop against each other'
	@echo 'make bench-aof       the append-only log: appendfsync always and everysec'
	@echo 'make bench-frag [SIZE_MB=1000]  does memory come back after mass deletion?'
	@echo 'make soak [TIME=..]  long run of the random tests with changing seeds'
	@echo 'make coverage        lines reached by the unit and server tests'
	@echo 'make lint, format    check the rules of STYLE.md; apply clang-format'
	@echo 'make install PREFIX=/usr/local DESTDIR='
	@echo 'make deps, clean, ci'
	@echo
	@echo 'V=<variant> works with every target: $(VARIANTS)'
