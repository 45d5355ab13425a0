/* Arrays and blocks of outputs, as Python passes them: every member takes 8 bytes. */

#ifndef WARPFRAG_ARGUMENTS_H
#define WARPFRAG_ARGUMENTS_H

#include "tensorcore/native/entry.h"

#define ARRAY(rank, type)      \
    struct {                   \
        type *data;            \
        int64_t shape[rank];   \
    }

/* A range of outputs: tiles, rows and columns, from the first up to but not including the last;
   `backend_protocol.py`. */
typedef struct {
    int64_t first_tile, last_tile, first_row, last_row, first_column, last_column;
} output_block;

#endif
