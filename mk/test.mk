# Test programs and how they run. tools/run-tests runs the suites, counts and prints the summary.
#
#   tests/unit/<folder>/test_*.c   one program each (Check), linked with the whole archive of its
#                                  folder and with lower archives only
#   tests/model/test_*.c           likewise, linked with everything; M= says how their names begin
#   tests/fuzz/fuzz_<target>.c     libFuzzer targets (make fuzz); replay.c runs their corpora
#   tests/bench/*.c                programs of make bench, linked with everything
#   tests/budget/budget.c          what instruction budgets count, linked with everything
#   tests/clients/*.c              hiredis programs; know nothing of our sources

.PHONY: test test-matrix test-unit test-server test-compare test-clients test-budget unit-programs \
        model-programs replay-programs bench-programs budget-programs client-programs fuzz \
        fuzz-program bench bench-types bench-messages bench-persist bench-evict bench-frag bench-aof bench-build \
        bench-io soak coverage

CHECK_LIBS := $(shell pkg-config --libs check 2>/dev/null || echo -lcheck -lsubunit -lrt -lm)
# liblzf judges base/lzf.c; the server does without.
ORACLE_LIBS := -llzf
# What is not linked into the training server has no profile.
TEST_CFLAGS = $(CFLAGS_ALL) -Itests -Itests/unit $(if $(PGO),-Wno-missing-profile)

UNIT_SOURCES := $(wildcard tests/unit/*/test_*.c)
ifneq ($(F),)
UNIT_SOURCES := $(filter tests/unit/$(F)/%,$(UNIT_SOURCES))
endif
ifneq ($(filter test-unit unit-programs,$(MAKECMDGOALS)),)
ifneq ($(T),)
UNIT_SOURCES := $(filter %/$(T).c %/test_$(T).c,$(UNIT_SOURCES))
endif
endif
UNIT_PROGRAMS := $(UNIT_SOURCES:tests/unit/%.c=$(B)/unit/%)
MODEL_PROGRAMS := $(patsubst tests/model/%.c,$(B)/model/%,$(wildcard tests/model/test_$(M)*.c))
FUZZ_TARGETS := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
REPLAY_PROGRAMS := $(FUZZ_TARGETS:%=$(B)/fuzz/replay_%)
BENCH_PROGRAMS := $(patsubst tests/bench/%.c,$(B)/bench/%,$(wildcard tests/bench/*.c))
CLIENT_PROGRAMS := $(patsubst tests/clients/%.c,$(B)/clients/%,$(wildcard tests/clients/*.c))

unit-programs: $(UNIT_PROGRAMS)
model-programs: $(MODEL_PROGRAMS)
replay-programs: $(REPLAY_PROGRAMS)
bench-programs: $(BENCH_PROGRAMS)
budget-programs: $(B)/budget/budget $(B)/budget/fast_paths
client-programs: $(CLIENT_PROGRAMS)

# Folder F whole, so that an object nobody refers to still has to find what it calls.
define unit_rule
$(B)/unit/$(1)/%: tests/unit/$(1)/%.c $(B)/lib$(1).a $(LOWER_$(1):%=$(B)/lib%.a) $(B)/.flags
	@mkdir -p $$(@D)
	@echo '  TEST  $$@'
	@$$(CC) $$(TEST_CFLAGS) -MMD -MP -MF $$@.d -MT $$@ $$< $$(LDFLAGS_ALL) -o $$@ \
	  -Wl,--whole-archive $(B)/lib$(1).a -Wl,--no-whole-archive \
	  -Wl,--start-group $(LOWER_$(1):%=$(B)/lib%.a) -Wl,--end-group $$(CHECK_LIBS) $$(ORACLE_LIBS) $$(LIBS)
endef
$(foreach f,$(FOLDERS),$(eval $(call unit_rule,$(f))))

$(B)/model/%: tests/model/%.c $(ARCHIVES) $(B)/.flags
	@mkdir -p $(@D)
	@echo '  TEST  $@'
	@$(CC) $(TEST_CFLAGS) -MMD -MP -MF $@.d -MT $@ $< $(LDFLAGS_ALL) -o $@ $(GROUP) $(CHECK_LIBS) $(LIBS)

# Those of the memory layer need no other.
$(B)/model/test_mem_%: tests/model/test_mem_%.c $(B)/libmem.a $(LOWER_mem:%=$(B)/lib%.a) $(B)/.flags
	@mkdir -p $(@D)
	@echo '  TEST  $@'
	@$(CC) $(TEST_CFLAGS) -MMD -MP -MF $@.d -MT $@ $< $(LDFLAGS_ALL) -o $@ -Wl,--start-group \
	  $(B)/libmem.a $(LOWER_mem:%=$(B)/lib%.a) -Wl,--end-group $(CHECK_LIBS) $(LIBS)

$(B)/bench/%: tests/bench/%.c $(ARCHIVES) $(B)/.flags
	@mkdir -p $(@D)
	@echo '  BENCH $@'
	@$(CC) $(TEST_CFLAGS) -MMD -MP -MF $@.d -MT $@ $< $(LDFLAGS_ALL) -o $@ $(GROUP) $(LIBS)

$(B)/budget/%: tests/budget/%.c $(ARCHIVES) $(B)/.flags
	@mkdir -p $(@D)
	@echo '  TEST  $@'
	@$(CC) $(TEST_CFLAGS) -MMD -MP -MF $@.d -MT $@ $< $(LDFLAGS_ALL) -o $@ $(GROUP) $(LIBS)

# Without link-time optimisation, so that what is not inlined stays a function to look at.
FAST_PATH_SOURCES := tests/budget/fast_paths.c $(wildcard src/mem/*.c src/base/*.c)
$(B)/budget/fast_paths: $(FAST_PATH_SOURCES) $(wildcard src/mem/*.h src/base/*.h) $(B)/.flags
	@mkdir -p $(@D)
	@echo '  TEST  $@'
	@$(CC) -std=gnu17 -D_GNU_SOURCE -Isrc -pthread $(WARNINGS) -O2 -g $(FAST_PATH_SOURCES) -o $@ \
	  $(LIBS)

$(B)/clients/%: tests/clients/%.c $(B)/.flags
	@mkdir -p $(@D)
	@echo '  TEST  $@'
	@$(CC) $(TEST_CFLAGS) -MMD -MP -MF $@.d -MT $@ $< $(LDFLAGS_ALL) -o $@ -lhiredis

$(B)/fuzz/replay_%: tests/fuzz/fuzz_%.c tests/fuzz/replay.c $(ARCHIVES) $(B)/.flags
	@mkdir -p $(@D)
	@echo '  TEST  $@'
	@$(CC) $(TEST_CFLAGS) -Wno-missing-prototypes -MMD -MP -MF $@.d -MT $@ \
	  tests/fuzz/replay.c $< $(LDFLAGS_ALL) -o $@ $(GROUP) $(ORACLE_LIBS) $(LIBS)

$(B)/fuzz/fuzz_%: tests/fuzz/fuzz_%.c $(ARCHIVES) $(B)/.flags
	@mkdir -p $(@D)
	@echo '  FUZZ  $@'
	@$(CC) $(TEST_CFLAGS) -Wno-missing-prototypes -MMD -MP -MF $@.d -MT $@ \
	  -fsanitize=fuzzer $< $(LDFLAGS_ALL) -o $@ $(GROUP) $(ORACLE_LIBS) $(LIBS)

.PRECIOUS: $(B)/fuzz/fuzz_% $(B)/fuzz/replay_%

-include $(wildcard $(B)/unit/*/*.d $(B)/model/*.d $(B)/bench/*.d $(B)/budget/*.d $(B)/clients/*.d \
           $(B)/fuzz/*.d)

# --- running ---

# Without V the tests run in the debug variant (server tests: release), as their users expect.
V_GIVEN := $(filter command line environment,$(origin V))
RUN_TESTS = $(PYTHON) tools/run-tests --build $(BUILD)

test:
	@tools/install-deps build test
	@$(RUN_TESTS) all

test-matrix:
	@$(RUN_TESTS) matrix

test-unit:
	@$(RUN_TESTS) unit --variants $(if $(V_GIVEN),$(V),debug) --folder '$(F)' --file '$(T)'

test-server:
	@$(RUN_TESTS) server --variants $(if $(V_GIVEN),$(V),release) --select '$(K)'

test-compare:
	@$(RUN_TESTS) compare --variants $(if $(V_GIVEN),$(V),release) --select '$(K)'

test-clients:
	@$(RUN_TESTS) clients --variants $(if $(V_GIVEN),$(V),release)

test-budget:
	@$(RUN_TESTS) budget

bench:
	@$(MAKE) --no-print-directory -j2 V=release server bench-programs
	@$(PYTHON) tests/bench/bench.py $(ARGS)

# Hashes, lists, sets and sorted sets beside redis-server.
bench-types:
	@$(MAKE) --no-print-directory -j2 V=release server bench-programs
	@$(PYTHON) tests/bench/datatypes.py $(ARGS)

# Messages, transactions, waiting, scripts, tracking and eviction beside redis-server.
bench-messages:
	@$(MAKE) --no-print-directory -j2 V=release server bench-programs
	@$(PYTHON) tests/bench/messages.py $(ARGS)

# Saving and loading beside redis-server. ARGS="--full": 5 million keys.
bench-persist:
	@$(MAKE) --no-print-directory -j2 V=release server bench-programs
	@$(PYTHON) tests/bench/persist.py $(ARGS)

# Hit rates of the eviction policies, beside redis-server's.
bench-evict:
	@$(MAKE) --no-print-directory -j2 V=release server bench-programs
	@$(PYTHON) tests/bench/evict.py $(ARGS)

# Every optimisation beside redis-server: which one the release variant should be. docs/build.md
bench-build:
	@for variant in $(OPTIMISATIONS); do $(MAKE) --no-print-directory -j2 V=$$variant server; done
	@$(MAKE) --no-print-directory -j2 V=release bench-programs
	@$(PYTHON) tests/bench/build.py --build $(BUILD) $(ARGS)

# The backends of the event loop beside redis-server. docs/measurements.md
IO_BACKENDS := epoll io_uring
bench-io:
	@$(MAKE) --no-print-directory -j2 V=release server bench-programs
	@$(PYTHON) tests/bench/build.py --build $(BUILD) --rounds 9 \
	  $(foreach b,$(IO_BACKENDS),--kvik '$(b)=$(BUILD)/release/kvik-server --io-backend $(b)') \
	  $(or $(ARGS),set-p1 get-p1 set-p10 get-p10 set-p50 get-p50)

# Does memory come back, and what does a steady load notice of it? SIZE_MB: bytes in use.
SIZE_MB ?= 1000
bench-frag:
	@$(MAKE) --no-print-directory -j2 V=release server bench-programs
	@$(PYTHON) tests/bench/frag.py $(SIZE_MB) $(ARGS)

# The append-only log beside redis-server's.
bench-aof:
	@$(MAKE) --no-print-directory -j2 V=release server
	@$(PYTHON) tests/bench/aof.py $(ARGS)

TIME ?= 60
fuzz:
	@tools/install-deps build fuzz
	@[ -n '$(T)' ] || { echo 'make fuzz T=<target> TIME=<seconds>; targets: $(FUZZ_TARGETS) all'; exit 2; }
	@for target in $(if $(filter all,$(T)),$(FUZZ_TARGETS),$(T)); do \
	  variant=fuzz; [ $$target != mem ] || variant=fuzz-own; \
	  $(MAKE) --no-print-directory -j2 V=$$variant $(BUILD)/$$variant/fuzz/fuzz_$$target; \
	  mkdir -p $(BUILD)/fuzz/corpus/$$target tests/fuzz/corpus/$$target; \
	  $(BUILD)/$$variant/fuzz/fuzz_$$target -max_total_time=$(TIME) -timeout=10 -rss_limit_mb=2048 \
	    -artifact_prefix=$(BUILD)/fuzz/crash-$$target- \
	    $(BUILD)/fuzz/corpus/$$target tests/fuzz/corpus/$$target; \
	done

# Random tests again and again with new seeds, under the sanitizers, for TIME seconds.
soak:
	@$(RUN_TESTS) soak --seconds $(TIME)

coverage:
	@tools/install-deps build test coverage
	@$(RUN_TESTS) unit --variants coverage
	@$(RUN_TESTS) server --variants coverage
	@gcovr --root . --object-directory $(BUILD)/coverage --filter src/ --print-summary \
	  --html-details $(BUILD)/coverage/report.html
	@echo 'report: $(BUILD)/coverage/report.html'
