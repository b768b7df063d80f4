/* Directives: what each name of a configuration file means. The table in config_table.c knows every
 * directive of Redis 8 and Kvik's own; config.h keeps the values.
 *
 * Terms
 *   built     bound to something that Kvik does
 *   tuning    checked, stored and shown, without effect: Kvik does not need it
 *   refused   promises safety or a feature that this version does not have: only the value that
 *             switches it off is allowed, everything else refuses to start and fails CONFIG SET
 *   canonical the form in which CONFIG GET shows a value; equal values have equal canonical forms
 */
#ifndef KV_ADMIN_DIRECTIVE_H
#define KV_ADMIN_DIRECTIVE_H

#include "admin/text.h"
#include "admin/words.h"
#include "engine/options.h"

#define KV_THREADS_MAX 128
#define KV_REASON_MAX 320 /* bytes of an explanation, terminator included */

enum kv_directive_type {
    KV_DIR_BOOL,    /* yes, no */
    KV_DIR_INT,     /* decimal, min..max */
    KV_DIR_OCTAL,   /* octal, min..max */
    KV_DIR_MEMORY,  /* bytes with an optional unit, min..max */
    KV_DIR_PERCENT, /* memory, or 0% to 100% which is kept as a negative number */
    KV_DIR_ENUM,    /* one of names[]; the number is its index */
    KV_DIR_BITS,    /* several of names[]; bit i stands for names[i + 1], none is names[0] */
    KV_DIR_TEXT,    /* one word */
    KV_DIR_SPECIAL, /* words with a parser of their own; kept as canonical text */
};

enum kv_directive_kind { KV_DIR_TUNING, KV_DIR_BUILT, KV_DIR_REFUSED };

enum kv_directive_flags {
    KV_DIR_IMMUTABLE = 1, /* set at the start only */
    KV_DIR_PROTECTED = 2, /* changeable only as enable-protected-configs allows */
    KV_DIR_HIDDEN = 4,    /* shown by its exact name only */
    KV_DIR_ENUM_TEXT = 8, /* the option field is a string: the enum's name */
};

/* One value. Numbers and enums use `number`; TEXT and SPECIAL own `text`. */
struct kv_config_value {
    int64_t number;
    char *text; /* terminated, text_len + 1 bytes of KV_MEM_CONFIG; NULL for the number types */
    size_t text_len;
};

/* Where a refusal is explained. */
struct kv_reason {
    char text[KV_REASON_MAX];
};
void kv_reason_set(struct kv_reason *r, const char *fmt, ...) KV_PRINTF(2, 3);

/* Turns words into the canonical text; `old` is the value so far, for directives that accumulate.
 * False: the reason is set. */
typedef bool (*kv_directive_parse_fn)(const struct kv_words *words, struct kv_slice old,
                                      struct kv_text *out, struct kv_reason *reason);
/* Further check of a value that the type accepts; may bring it into range. */
typedef bool (*kv_directive_check_fn)(struct kv_config_value *v, struct kv_reason *reason);

struct kv_directive {
    const char *name;            /* lower case */
    const char *alias;           /* older name, or NULL */
    const char *initial;         /* default, as it would stand in a file */
    const char *const *names;    /* ENUM and BITS: NULL-terminated */
    kv_directive_parse_fn parse; /* SPECIAL only */
    kv_directive_check_fn check; /* or NULL */
    int64_t min, max;            /* INT, OCTAL, MEMORY */
    uint16_t offset;             /* of the field in struct kv_options */
    uint8_t width;               /* of that field in bytes; 0: not bound to a plain field */
    uint8_t type, kind, flags;   /* the enums above */
};

extern const struct kv_directive kv_directives[];
extern const uint32_t kv_directive_count;

/* By name or alias, any case; -1 when unknown. */
int kv_directive_find(struct kv_slice name);

/* True for names that older servers knew and that are read over silently. */
bool kv_directive_obsolete(struct kv_slice name);

/* Parses the words behind the name. On success *out owns memory (kv_config_value_release). On
 * failure the reason is set and *out is untouched. `old` may be NULL. */
bool kv_directive_parse(const struct kv_directive *d, struct kv_arena *arena,
                        const struct kv_words *words, const struct kv_config_value *old,
                        struct kv_config_value *out, struct kv_reason *reason) KV_MUST_CHECK;

void kv_config_value_release(struct kv_config_value *v);
bool kv_config_value_same(const struct kv_directive *d, const struct kv_config_value *a,
                          const struct kv_config_value *b);

/* Appends the canonical form. */
void kv_directive_print(const struct kv_directive *d, const struct kv_config_value *v,
                        struct kv_text *out);

/* Appends the form for a file: memory with units, text quoted where needed. */
void kv_directive_print_line(const struct kv_directive *d, const struct kv_config_value *v,
                             struct kv_text *out);

/* Parsers and checks of single directives, config_special.c. */
bool kv_parse_save(const struct kv_words *, struct kv_slice, struct kv_text *, struct kv_reason *);
bool kv_parse_output_limit(const struct kv_words *, struct kv_slice, struct kv_text *,
                           struct kv_reason *);
bool kv_parse_events(const struct kv_words *, struct kv_slice, struct kv_text *,
                     struct kv_reason *);
bool kv_parse_oom_values(const struct kv_words *, struct kv_slice, struct kv_text *,
                         struct kv_reason *);
bool kv_parse_percentiles(const struct kv_words *, struct kv_slice, struct kv_text *,
                          struct kv_reason *);
bool kv_parse_bind(const struct kv_words *, struct kv_slice, struct kv_text *, struct kv_reason *);
bool kv_parse_words(const struct kv_words *, struct kv_slice, struct kv_text *, struct kv_reason *);
bool kv_parse_replicaof(const struct kv_words *, struct kv_slice, struct kv_text *,
                        struct kv_reason *);
bool kv_parse_threads(const struct kv_words *, struct kv_slice, struct kv_text *,
                      struct kv_reason *);
bool kv_check_power_of_two(struct kv_config_value *, struct kv_reason *);
bool kv_check_folder(struct kv_config_value *, struct kv_reason *);
bool kv_check_file_name(struct kv_config_value *, struct kv_reason *);
bool kv_check_title(struct kv_config_value *, struct kv_reason *);
bool kv_check_hz(struct kv_config_value *, struct kv_reason *);
bool kv_check_shutdown(struct kv_config_value *, struct kv_reason *);

/* The reason for which a value of a refused directive is not taken. */
void kv_directive_refusal(const struct kv_directive *d, struct kv_reason *reason);

/* The canonical text of client-output-buffer-limit as numbers. */
void kv_output_limits_read(struct kv_slice text, struct kv_output_limit out[KV_CLASS_COUNT]);

#endif
