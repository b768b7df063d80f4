# Profile-guided optimisation: build a server that counts, train it, build again with the counts.
#
# Both phases use the same object paths, because the name of a profile is made from that of its
# object: only the .gcda files stay between them. The training server is linked with whole archives,
# so that each object leaves a profile and a missing one is an error (-Wmissing-profile). It must end
# by exit: a killed process writes none. Counters are atomic because there are several threads.
#
# The profile is made again whenever a source, the trainer or these rules changed; `touch` of
# $(B)/.profile keeps an older one, of which changed functions do without (coverage-mismatch).

PROFILE := $(B)/.profile
PROFILE_INPUTS := $(SOURCES) $(wildcard src/*/*.h) tests/bench/train.py mk/variants.mk mk/pgo.mk

.PHONY: pgo

pgo:
	@$(MAKE) --no-print-directory V=pgo server

ifneq ($(PGO),)
ifeq ($(PHASE),train)

# Nothing of another phase is left when the counting server is built.
$(B)/.flags: | $(B)/.fresh
$(B)/.fresh: FORCE
	@mkdir -p $(B)
	@find $(B) -name '*.gcda' -delete

GROUP := -Wl,--whole-archive $(ARCHIVES) -Wl,--no-whole-archive

else

$(B)/.flags: $(PROFILE)

$(PROFILE): $(PROFILE_INPUTS)
	@mkdir -p $(B)
	@echo '  TRAIN $(V)'
	@$(MAKE) --no-print-directory V=$(V) PHASE=train server
	@$(PYTHON) tests/bench/train.py $(B)/kvik-server
	@rm -f $(B)/kvik-server
	@touch $@

endif
endif
