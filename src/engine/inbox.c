/* Message queue of a worker: a stack pushed with compare-and-swap, taken whole and reversed.
 *
 * Messages are rare beside commands (contention, new connections, exclusive commands), so each is
 * an allocation of its own; a burst to one worker costs one wake-up because the loop's wake is
 * behind a flag. The ABA problem cannot arise: the consumer takes the whole stack and never pops
 * single nodes.
 */
#include "engine/inbox.h"
#include "engine/worker.h"

void kv_inbox_post(struct kv_worker *to, enum kv_message_kind kind, uint32_t number,
                   uint32_t number2, void *pointer)
{
    struct kv_message *m = kv_mem_alloc(sizeof(*m), KV_MEM_OTHER);
    *m =
        (struct kv_message){.kind = kind, .number = number, .number2 = number2, .pointer = pointer};
    m->next = atomic_load_explicit(&to->inbox.head, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&to->inbox.head, &m->next, m,
                                                  memory_order_release, memory_order_relaxed))
        continue;
    if (to != kv_this_worker) /* that one looks before it waits */
        kv_loop_wake(to->loop);
}

struct kv_message *kv_inbox_take(struct kv_inbox *inbox)
{
    struct kv_message *m = atomic_exchange_explicit(&inbox->head, NULL, memory_order_acquire);
    struct kv_message *oldest_first = NULL;
    while (m != NULL) {
        struct kv_message *next = m->next;
        m->next = oldest_first;
        oldest_first = m;
        m = next;
    }
    return oldest_first;
}

void kv_inbox_free(struct kv_message *m)
{
    kv_mem_free(m, sizeof(*m), KV_MEM_OTHER);
}
