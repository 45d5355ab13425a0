/* Vector clocks of a screened launch whose threads synchronise through mbarriers and asynchronous copies.

   Time counts synchronisation events. `clocks` has a row for each warp: for every warp of its block, the time up to
   which that warp's accesses are ordered before its own; the same for accesses before a fence.proxy.async of their
   warp; the wgmma groups of each warp that are complete; and the completed phases of each mbarrier. A warp's own row
   in `fenced` has the times that its own last fence.proxy.async covers. Lanes of a warp run in lockstep. */

#ifndef WARPFRAG_ORDER_CLOCKS_H
#define WARPFRAG_ORDER_CLOCKS_H

#include <string.h>

#include "machine/jit/context.h"
#include "tensorcore/kernels/arguments.h"

INLINED int64_t *clocks_of(const launch_context *context, int64_t row)
{
    return context->screen_state->clocks + row * CLOCK_WORDS;
}

/* Let the warps of each block that meet at a barrier know everything that one of them knows or did. */
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
