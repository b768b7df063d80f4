# Variants: what each is for, and its flags. Variables set here: CC, AR, CFLAGS_ALL, LDFLAGS_ALL,
# LIBS.
#
#   release   what is shipped: the optimisation named by RELEASE below, assertions on
#   o2 o3 o2lto o3lto pgo   the same with one optimisation each, to be compared: docs/build.md
#   debug     -O1, KV_DEBUG: costly checks, true sizes kept beside every block
#   asan      debug checks with AddressSanitizer and UBSan, every block a real allocation
#   tsan      debug checks with ThreadSanitizer, likewise
#   asan-own  AddressSanitizer over our own slabs: free blocks are poisoned by hand
#   tsan-own  ThreadSanitizer over our own slabs and thread caches
#   coverage  -O0 with gcov counters
#   fuzz      clang with libFuzzer, AddressSanitizer and UBSan
#   fuzz-own  the same over our own slabs: for the target that is about them

# The optimisation of the release variant; docs/build.md has the measurements behind the choice.
RELEASE := o2lto

OPTIMISATIONS := o2 o3 o2lto o3lto pgo
VARIANTS := release $(OPTIMISATIONS) debug asan tsan asan-own tsan-own coverage fuzz fuzz-own
ifeq ($(filter $(V),$(VARIANTS)),)
$(error V=$(V) is no variant: $(VARIANTS))
endif

# make predefines CC as cc, so "?=" would never take effect.
ifeq ($(origin CC),default)
CC := gcc
endif
ifneq ($(filter fuzz fuzz-own,$(V)),)
CC := clang
endif
CC_IS_CLANG := $(findstring clang,$(CC))

# Is this build guided by a profile? Then mk/pgo.mk makes the profile first. PHASE is `train` in the
# inner make that builds the server that counts, `use` everywhere else.
PGO := $(filter pgo,$(patsubst release,$(RELEASE),$(V)))
PHASE ?= use

WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
            -Wwrite-strings -Werror

SANITIZE_ADDRESS := -fsanitize=address,undefined -fno-sanitize-recover=undefined \
                    -fno-omit-frame-pointer

LTO := -flto=auto -fno-fat-lto-objects
PROFILE_train := -fprofile-generate -fprofile-update=atomic
PROFILE_use := -fprofile-use -Wmissing-profile -Wno-error=coverage-mismatch

FLAGS_o2 := -O2 -g
FLAGS_o3 := -O3 -g
FLAGS_o2lto := -O2 -g
FLAGS_o3lto := -O3 -g
FLAGS_pgo := -O2 -g
FLAGS_debug := -O1 -g3 -DKV_DEBUG -fno-omit-frame-pointer
FLAGS_asan := -O1 -g -DKV_DEBUG -DKV_MEM_SYSTEM $(SANITIZE_ADDRESS)
FLAGS_tsan := -O1 -g -DKV_DEBUG -DKV_MEM_SYSTEM -fsanitize=thread -fno-omit-frame-pointer
FLAGS_asan-own := -O1 -g -DKV_DEBUG -DKV_MEM_NO_JEMALLOC $(SANITIZE_ADDRESS)
FLAGS_tsan-own := -O1 -g -DKV_DEBUG -DKV_MEM_NO_JEMALLOC -fsanitize=thread -fno-omit-frame-pointer
FLAGS_coverage := -O0 -g --coverage -fprofile-update=atomic -DKV_COVERAGE
FLAGS_fuzz := -O1 -g -DKV_DEBUG -DKV_MEM_SYSTEM -fsanitize=fuzzer-no-link $(SANITIZE_ADDRESS)
FLAGS_fuzz-own := -O1 -g -DKV_DEBUG -DKV_MEM_NO_JEMALLOC -fsanitize=fuzzer-no-link \
                  $(SANITIZE_ADDRESS)

LINK_asan := $(SANITIZE_ADDRESS)
LINK_tsan := -fsanitize=thread
LINK_asan-own := $(SANITIZE_ADDRESS)
LINK_tsan-own := -fsanitize=thread
LINK_coverage := --coverage
LINK_fuzz := $(SANITIZE_ADDRESS)
LINK_fuzz-own := $(SANITIZE_ADDRESS)

AR := ar
ifeq ($(CC_IS_CLANG),)
# gcc's own archiver: it keeps the symbol index of objects that hold only intermediate code.
AR := gcc-ar
FLAGS_o2lto += $(LTO)
FLAGS_o3lto += $(LTO)
FLAGS_pgo += $(LTO) $(PROFILE_$(PHASE))
LINK_o2lto := -O2 -flto=auto
LINK_o3lto := -O3 -flto=auto
LINK_pgo := -O2 -flto=auto $(filter -f%,$(PROFILE_$(PHASE)))
# ThreadSanitizer does not know fences; the code under test uses none that it would need.
FLAGS_tsan += -Wno-error=tsan
FLAGS_tsan-own += -Wno-error=tsan
endif

FLAGS_release := $(FLAGS_$(RELEASE))
LINK_release := $(LINK_$(RELEASE))

CFLAGS_ALL = -std=gnu17 -D_GNU_SOURCE -Isrc -pthread $(WARNINGS) $(FLAGS_$(V)) $(CFLAGS)
LDFLAGS_ALL = -pthread $(LINK_$(V)) $(LDFLAGS)

# Lua is linked statically: a script's instructions need no table of addresses to call a function.
LIBS := -lxxhash -luring -l:liblua5.1-cjson.a -l:liblua5.1-bitop.a -l:liblua5.1.a -lm
ifeq ($(findstring KV_MEM_SYSTEM,$(FLAGS_$(V)))$(findstring KV_MEM_NO_JEMALLOC,$(FLAGS_$(V))),)
LIBS += -ljemalloc
endif
