# Contenders of `make bench-mem`: tests/bench/mem/paths.c once for each allocator. All of them are
# compiled with the flags of MEM_BENCH_FLAGS; `kvik` is the shipped build (objects of the release
# variant, link-time optimisation), `kvik-plain` the same sources without it.

.PHONY: bench-mem bench-mem-programs

MEM_BENCH := $(BUILD)/release/bench-mem
MEM_CONTENDERS := kvik kvik-plain pool jemalloc sized counted mimalloc glibc none
MEM_BENCH_FLAGS = -std=gnu17 -D_GNU_SOURCE -Isrc -pthread $(WARNINGS) -O2 -g \
  -falign-functions=64 -falign-loops=32
MEM_BENCH_SOURCES := tests/bench/mem/paths.c $(wildcard tests/bench/mem/*.h)
MEM_BENCH_OWN := $(wildcard src/mem/*.c src/base/*.c)

mem_macro = -DCONTENDER_$(shell echo $(1) | tr a-z- A-Z_)

$(MEM_BENCH)/kvik: $(MEM_BENCH_SOURCES) $(BUILD)/release/libmem.a $(BUILD)/release/libbase.a
	@mkdir -p $(@D)
	@echo '  BENCH $@'
	@$(CC) $(CFLAGS_ALL) -Wno-missing-profile $(MEM_BENCH_FLAGS) -DCONTENDER_KVIK $< $(LDFLAGS_ALL) -o $@ \
	  $(BUILD)/release/libmem.a $(BUILD)/release/libbase.a $(LIBS)

$(MEM_BENCH)/kvik-plain: $(MEM_BENCH_SOURCES) $(MEM_BENCH_OWN) $(wildcard src/mem/*.h src/base/*.h)
	@mkdir -p $(@D)
	@echo '  BENCH $@'
	@$(CC) $(MEM_BENCH_FLAGS) -DCONTENDER_KVIK $< $(MEM_BENCH_OWN) -o $@ -ljemalloc -lxxhash -lm

$(MEM_BENCH)/jemalloc $(MEM_BENCH)/sized $(MEM_BENCH)/counted: MEM_LIBS := -ljemalloc
$(MEM_BENCH)/mimalloc: MEM_LIBS := -lmimalloc

$(filter-out %/kvik %/kvik-plain,$(MEM_CONTENDERS:%=$(MEM_BENCH)/%)): $(MEM_BENCH_SOURCES)
	@mkdir -p $(@D)
	@echo '  BENCH $@'
	@$(CC) $(MEM_BENCH_FLAGS) $(call mem_macro,$(@F)) $< -o $@ $(MEM_LIBS)

bench-mem-programs: $(MEM_CONTENDERS:%=$(MEM_BENCH)/%)

# QUICK=1: small numbers, less than 40 seconds. ARGS: options of memory.py.
bench-mem:
	@tools/install-deps build bench
	@$(MAKE) --no-print-directory -j2 V=release bench-mem-programs
	@$(PYTHON) tests/bench/mem/memory.py --programs $(MEM_BENCH) $(if $(QUICK),--quick) $(ARGS)
