# The memory layer for other programs: one header and a static library, over the C library alone (no
# jemalloc, so malloc stays what it is). libkvmem-debug.a checks every size and owner; programs are
# then compiled with -DKV_DEBUG too. docs/mem-library.md; examples/mem.
#
# Objects are position-independent, so that they can go into a shared library as well.

LIB := $(BUILD)/lib
LIB_SOURCES := $(wildcard src/base/*.c src/mem/*.c)
LIB_FLAGS := -std=gnu17 -D_GNU_SOURCE -Isrc -pthread $(WARNINGS) -g -fPIC -DKV_MEM_NO_JEMALLOC
EXAMPLE_FLAGS := -std=c17 -Wall -Wextra -pedantic -Werror -O2 -g -pthread -I$(LIB)
LIB_FILES := $(LIB)/kvmem.h $(LIB)/libkvmem.a $(LIB)/libkvmem-debug.a

.PHONY: lib lib-examples test-library install-lib

lib: $(LIB_FILES)

$(LIB)/kvmem.h: tools/gen_library_header.py $(wildcard src/base/*.h src/mem/*.h)
	@mkdir -p $(@D)
	@echo '  MAKE  $@'
	@$(PYTHON) tools/gen_library_header.py $@
	@touch $@

# $(1): name of the archive; $(2): further flags.
define library_rule
$(LIB)/$(1)/%.o: src/%.c mk/lib.mk
	@mkdir -p $$(@D)
	@echo '  CC    $(1) $$<'
	@$$(CC) $$(LIB_FLAGS) $(2) -MMD -MP -c $$< -o $$@

$(LIB)/lib$(1).a: $(LIB_SOURCES:src/%.c=$(LIB)/$(1)/%.o)
	@rm -f $$@
	@ar rcs $$@ $$^

-include $(LIB_SOURCES:src/%.c=$(LIB)/$(1)/%.d)
endef
$(eval $(call library_rule,kvmem,-O2))
$(eval $(call library_rule,kvmem-debug,-O1 -DKV_DEBUG))

$(LIB)/examples/%: examples/mem/%.c $(LIB_FILES)
	@mkdir -p $(@D)
	@echo '  EXAMPLE $@'
	@$(CC) $(EXAMPLE_FLAGS) $< $(LIB)/libkvmem.a -o $@
	@$(CC) $(EXAMPLE_FLAGS) -DKV_DEBUG $< $(LIB)/libkvmem-debug.a -o $@-debug

lib-examples: $(patsubst examples/mem/%.c,$(LIB)/examples/%,$(wildcard examples/mem/*.c))

test-library:
	@$(RUN_TESTS) library

install-lib: lib
	install -D -m 644 $(LIB)/kvmem.h $(DESTDIR)$(PREFIX)/include/kvmem.h
	install -D -m 644 $(LIB)/libkvmem.a $(DESTDIR)$(PREFIX)/lib/libkvmem.a
	install -D -m 644 $(LIB)/libkvmem-debug.a $(DESTDIR)$(PREFIX)/lib/libkvmem-debug.a
	install -D -m 644 docs/mem-library.md $(DESTDIR)$(PREFIX)/share/doc/kvik/mem-library.md
