/* Vector clocks of a screened launch whose threads synchronise through mbarriers and asynchronous copies.

   Time counts synchronisation events. `clocks` has a row for each warp, with four parts: for every warp of its block,
   the time up to which that warp's accesses are ordered before its own; the same for accesses that are followed by a
   fence.proxy.async of their warp; the number of complete wgmma groups of each warp; and the number of completed phases
   of each mbarrier. `fenced` also has a row for each warp: the times that the warp's last fence.proxy.async covers.
   Lanes of a warp run in lockstep. */

#ifndef WARPFRAG_ORDER_CLOCKS_H
#define WARPFRAG_ORDER_CLOCKS_H

#include <string.h>

#include "machine/jit/context.h"
#include "tensorcore/kernels/arguments.h"

INLINED int64_t *clocks_of(const launch_context *context, int64_t row)
{
    return context->screen_state->clocks + row * CLOCK_WORDS;
}

/* For the warps of each block that meet at a barrier: order each after everything that any of them did or knows. */
INLINED void join_warps(launch_context *context, const int64_t *rows, int64_t count)
{
    screen_state *state = context->screen_state;
    if (!state || !state->clocks)
        return;
    for (int64_t first = 0, end; first < count; first = end) {
        int64_t block = rows[first] / context->block_warps, every[CLOCK_WORDS] = {0};
        for (end = first; end < count && rows[end] / context->block_warps == block; end++) {
            int64_t *own = clocks_of(context, rows[end]);
            own[rows[end] % context->block_warps] = state->now;
            for (int i = 0; i < CLOCK_WORDS; i++)
                every[i] = own[i] > every[i] ? own[i] : every[i];
        }
        for (int64_t i = first; i < end; i++)
            memcpy(clocks_of(context, rows[i]), every, sizeof every);
    }
    state->now++;
}

#endif
