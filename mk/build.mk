# Sources to archives to the server. Each folder of src/LAYERS becomes one static archive, so that
# the unit tests of a folder can be linked with lower archives only: an upward call that slipped past
# the include check is then an undefined reference.

B := $(BUILD)/$(V)

comma := ,
LAYER_LINES := $(shell sed 's/  */,/g' src/LAYERS)
FOLDERS := $(subst $(comma), ,$(LAYER_LINES))

# LOWER_<folder>: the folders on the lines above it.
LAYERS_SEEN :=
$(foreach line,$(LAYER_LINES),\
  $(foreach f,$(subst $(comma), ,$(line)),$(eval LOWER_$(f) := $(LAYERS_SEEN)))\
  $(eval LAYERS_SEEN := $(LAYERS_SEEN) $(subst $(comma), ,$(line))))

# main.c stays out of its archive: test programs bring a main of their own.
MAIN_SOURCE := $(wildcard src/server/main.c)
SOURCES := $(foreach f,$(FOLDERS),$(wildcard src/$(f)/*.c))
OBJECTS := $(SOURCES:src/%.c=$(B)/obj/%.o)
MAIN_OBJECT := $(MAIN_SOURCE:src/%.c=$(B)/obj/%.o)
ARCHIVES := $(FOLDERS:%=$(B)/lib%.a)
GROUP := -Wl,--start-group $(ARCHIVES) -Wl,--end-group

# Rewritten only when the command line changed; every object depends on it.
FLAGS_LINE = $(CC) $(CFLAGS_ALL) | $(LDFLAGS_ALL) $(LIBS)
$(B)/.flags: FORCE
	@mkdir -p $(B)
	@echo '$(FLAGS_LINE)' | cmp -s - $@ || echo '$(FLAGS_LINE)' > $@

.PHONY: FORCE server archives objects
FORCE:

$(B)/obj/%.o: src/%.c $(B)/.flags
	@mkdir -p $(@D)
	@echo '  CC    $(V) $<'
	@$(CC) $(CFLAGS_ALL) -MMD -MP -c $< -o $@

# The list of members is kept beside the archive: a removed source must remake it.
define archive_rule
$(B)/.members-$(1): FORCE
	@mkdir -p $(B)
	@echo '$(2)' | cmp -s - $$@ || echo '$(2)' > $$@

$(B)/lib$(1).a: $(2) $(B)/.members-$(1)
	@rm -f $$@
	@$(AR) rcs $$@ $(2)
endef
$(foreach f,$(FOLDERS),$(eval $(call archive_rule,$(f),\
  $(filter-out $(MAIN_OBJECT),$(patsubst src/%.c,$(B)/obj/%.o,$(wildcard src/$(f)/*.c))))))

objects: $(OBJECTS)
archives: $(ARCHIVES)

ifeq ($(MAIN_SOURCE),)
server: archives
	@echo 'src/server/main.c does not exist: built the archives only'
else
server: $(B)/kvik-server
endif

$(B)/kvik-server: $(MAIN_OBJECT) $(ARCHIVES) $(B)/.flags
	@echo '  LINK  $@'
	@$(CC) $(CFLAGS_ALL) $(LDFLAGS_ALL) $(MAIN_OBJECT) $(GROUP) $(LIBS) -o $@

-include $(OBJECTS:.o=.d)
