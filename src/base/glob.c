/* Glob matching.
 *
 * A pattern is a sequence of elements. A star stands for any number of bytes; every other element
 * stands for exactly one byte:
 *
 *   ?        any byte
 *   \x       the byte x; a backslash at the very end stands for itself
 *   [...]    one of a class: bytes, escaped bytes and ranges a-z, reversed ranges included;
 *            [^...] one not of it. The first ] closes it, so [] matches nothing and [^] everything.
 *            A class that the pattern's end cuts off counts as closed there.
 *   x        itself
 *
 * Because only stars are elastic, the leftmost match of what lies between two stars is as good as
 * any other, and only the last star passed has ever to be tried again at a later byte. So the state
 * is four numbers, there is no recursion, and the time is at most pattern * text, whatever the
 * pattern. The obvious recursive matcher tries all stars against each other and takes
 * exponential time on patterns like *a*a*a*a*b.
 *
 * The empty text is matched by the empty pattern and by a single star only: two stars do not match
 * it, as clients of KEYS can see.
 *
 * Without regard to case, ASCII letters are folded on both sides, with three quirks that clients
 * can see and which are therefore kept: an escaped byte within a class is compared exactly; the
 * ends of a range are put in order first and folded afterwards, so [F-d] becomes the empty range f
 * to d; and bytes of a range are compared as signed numbers, so [\x80-a] spans zero.
 *
 * Threads: any; pure function. */
#include "base/glob.h"

#include "base/assert.h"

/* Signed on purpose, see above. */
static int fold(char c, bool nocase)
{
    return nocase && c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
}

static bool in_range(char first, char last, char c, bool nocase)
{
    if (first > last) {
        char swap = first;
        first = last;
        last = swap;
    }
    return fold(c, nocase) >= fold(first, nocase) && fold(c, nocase) <= fold(last, nocase);
}

/* *pos is behind the opening bracket and ends behind the class. */
static bool match_class(struct kv_slice pattern, size_t *pos, char c, bool nocase)
{
    const char *p = pattern.ptr;
    size_t i = *pos;
    bool negated = i < pattern.len && p[i] == '^';
    bool found = false;

    if (negated)
        i++;
    while (i < pattern.len && p[i] != ']') {
        size_t left = pattern.len - i;
        if (p[i] == '\\' && left >= 2) {
            found |= p[i + 1] == c;
            i += 2;
        } else if (left >= 3 && p[i + 1] == '-') {
            found |= in_range(p[i], p[i + 2], c, nocase);
            i += 3;
        } else {
            found |= fold(p[i], nocase) == fold(c, nocase);
            i++;
        }
    }
    KV_DASSERT(i <= pattern.len);
    *pos = i < pattern.len ? i + 1 : i;
    return found != negated;
}

/* Compares one byte with the element at *pos, which is not a star, and moves *pos behind it. */
static bool match_element(struct kv_slice pattern, size_t *pos, char c, bool nocase)
{
    char element = pattern.ptr[(*pos)++];

    KV_DASSERT(element != '*');
    if (element == '?')
        return true;
    if (element == '[')
        return match_class(pattern, pos, c, nocase);
    if (element == '\\' && *pos < pattern.len)
        element = pattern.ptr[(*pos)++];
    return fold(element, nocase) == fold(c, nocase);
}

static size_t skip_stars(struct kv_slice pattern, size_t pos)
{
    while (pos < pattern.len && pattern.ptr[pos] == '*')
        pos++;
    return pos;
}

bool kv_glob_match(struct kv_slice pattern, struct kv_slice text, bool nocase)
{
    size_t pos = 0;             /* in the pattern */
    size_t at = 0;              /* in the text */
    size_t star_pos = SIZE_MAX; /* element behind the last star passed; SIZE_MAX: none yet */
    size_t star_at = 0;         /* where that star's rest was tried last */

    KV_DASSERT(pattern.ptr != NULL || pattern.len == 0);
    KV_DASSERT(text.ptr != NULL || text.len == 0);
    while (at < text.len) {
        if (pos < pattern.len && pattern.ptr[pos] == '*') {
            pos = skip_stars(pattern, pos);
            if (pos == pattern.len)
                return true;
            star_pos = pos;
            star_at = at;
        }
        if (pos < pattern.len && match_element(pattern, &pos, text.ptr[at], nocase)) {
            at++;
        } else if (star_pos != SIZE_MAX) {
            pos = star_pos;
            at = ++star_at;
        } else {
            return false;
        }
    }
    if (text.len == 0)
        return pattern.len == 0 || (pattern.len == 1 && pattern.ptr[0] == '*');
    return skip_stars(pattern, pos) == pattern.len;
}
