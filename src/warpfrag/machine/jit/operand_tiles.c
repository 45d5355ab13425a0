/* Copies between registers, shared memory and matrices of codes; `pending_mma.py` and `mma_issue.py` call them.

   `take` and the two loops over tiles exist for several code widths; codes of up to 32 bits become 32-bit codes. */

#include <string.h>

#include "machine/jit/context.h"
#include "tensorcore/kernels/arguments.h"

#define HASH_FACTOR UINT64_C(0x9E3779B97F4A7C15)
#define UNIT_WORDS 2 /* 64-bit words: operands are compared and copied in units of 16 bytes */

/* take_W: out[i, j] = codes[rows[i], index[j]], with i over warps. */
#define DEFINE_TAKE(width, element, code)                                                  \
    struct take_##width##_arguments {                                                      \
        ARRAY(2, const element) codes;                                                     \
        ARRAY(1, const int64_t) rows;                                                      \
        ARRAY(1, const int64_t) index;                                                     \
        ARRAY(2, code) out;                                                                \
    };                                                                                     \
                                                                                           \
    ENTRY(take_##width)(const struct take_##width##_arguments *arguments)                  \
    {                                                                                      \
        int64_t count = arguments->index.shape[0];                                         \
        const int64_t *restrict index = arguments->index.data;                             \
        code *restrict out = arguments->out.data;                                          \
        for (int64_t i = 0; i < arguments->rows.shape[0]; i++, out += count) {             \
            const element *row = arguments->codes.data;                                    \
            row += arguments->rows.data[i] * arguments->codes.shape[1];                    \
            for (int64_t j = 0; j < count; j++)                                            \
                out[j] = row[index[j]];                                                    \
        }                                                                                  \
        return 0;                                                                          \
    }

DEFINE_TAKE(1, uint8_t, uint32_t)
DEFINE_TAKE(2, uint16_t, uint32_t)
DEFINE_TAKE(4, uint32_t, uint32_t)
DEFINE_TAKE(8, uint64_t, uint64_t)

/* take_tiles_W and put_tiles_W: copy the tiles of a matrix from or to `cells`. The codes of tile (i, j) are at offsets
   `index` [height, width] from bases[i, j]. */
#define DEFINE_TILES(name, width, element, code, MOVE)                                                    \
    struct name##_##width##_arguments {                                                                   \
        ARRAY(1, element) cells;                                                                          \
        ARRAY(2, const int64_t) bases;                                                                    \
        ARRAY(2, const int64_t) index;                                                                    \
        ARRAY(2, code) matrix;                                                                            \
    };                                                                                                    \
                                                                                                          \
    ENTRY(name##_##width)(const struct name##_##width##_arguments *arguments)                             \
    {                                                                                                     \
        int64_t tile_height = arguments->index.shape[0], tile_width = arguments->index.shape[1];          \
        const int64_t *base = arguments->bases.data;                                                      \
        int64_t tile_columns = arguments->bases.shape[1];                                                 \
        code *restrict line = arguments->matrix.data;                                                     \
        for (int64_t i = 0; i < arguments->bases.shape[0]; i++, base += tile_columns)                     \
            for (int64_t y = 0; y < tile_height; y++)                                                     \
                for (int64_t j = 0; j < tile_columns; j++, line += tile_width) {                          \
                    element *restrict tile = arguments->cells.data + base[j];                             \
                    const int64_t *restrict index = arguments->index.data + y * tile_width;               \
                    for (int64_t x = 0; x < tile_width; x++)                                              \
                        MOVE(tile[index[x]], line[x]);                                                    \
                }                                                                                         \
        return 0;                                                                                         \
    }

#define TAKE(cell, code) (code) = (cell)
#define PUT(cell, code) (cell) = (code)
#define DEFINE_BOTH_TILES(width, element, code)             \
    DEFINE_TILES(take_tiles, width, element, code, TAKE)    \
    DEFINE_TILES(put_tiles, width, element, code, PUT)

DEFINE_BOTH_TILES(2, uint16_t, uint32_t)
DEFINE_BOTH_TILES(4, uint32_t, uint32_t)
DEFINE_BOTH_TILES(8, uint64_t, uint64_t)

/* Tiles of 16-byte units at offsets plans[which[i]] from bases[i]; all are counted in 64-bit words. */
typedef struct {
    ARRAY(1, const uint64_t) words;
    ARRAY(1, const int64_t) bases;
    ARRAY(2, const int64_t) plans;
    ARRAY(1, const int64_t) which;
} unit_tiles;

INLINED const int64_t *plan_of(const unit_tiles *tiles, int64_t tile)
{
    return tiles->plans.data + tiles->which.data[tile] * tiles->plans.shape[1];
}

INLINED const uint64_t *unit_of(const unit_tiles *tiles, int64_t tile, int64_t unit)
{
    return tiles->words.data + tiles->bases.data[tile] + plan_of(tiles, tile)[unit];
}

static bool are_equal(const unit_tiles *tiles, int64_t first, int64_t second)
{
    for (int64_t unit = 0; unit < tiles->plans.shape[1]; unit++) {
        const uint64_t *left = unit_of(tiles, first, unit), *right = unit_of(tiles, second, unit);
        if (left[0] != right[0] || left[1] != right[1])
            return false;
    }
    return true;
}

static uint64_t hash_of(const unit_tiles *tiles, int64_t tile)
{
    uint64_t low = 0, high = 0;
    for (int64_t unit = 0; unit < tiles->plans.shape[1]; unit++) {
        const uint64_t *words = unit_of(tiles, tile, unit);
        low = (low ^ words[0]) * HASH_FACTOR;
        high = (high ^ words[1]) * HASH_FACTOR;
    }
    return low ^ high >> 29 ^ high;
}

/* Return true if first[i] is equal to tile i for every i, and at least one tile repeats another. */
static bool holds(const unit_tiles *tiles, const int64_t *first)
{
    const int64_t *bases = tiles->bases.data, *which = tiles->which.data;
    bool shares = false;
    for (int64_t i = 0; i < tiles->bases.shape[0]; i++) {
        if (first[i] == i)
            continue;
        bool is_repeated
            = i > 0 && bases[i] == bases[i - 1] && which[i] == which[i - 1] && first[i] == first[i - 1];
        if (!is_repeated && !are_equal(tiles, i, first[i]))
            return false;
        shares = true;
    }
    return shares;
}

struct find_equal_arguments {
    unit_tiles tiles;
    ARRAY(1, int64_t) first;
    ARRAY(1, uint64_t) hashes;
};

/* For each tile, find the first tile with equal contents; keep the contents of `first` if they are still valid. */
ENTRY(find_equal)(const struct find_equal_arguments *arguments)
{
    const unit_tiles *tiles = &arguments->tiles;
    int64_t *first = arguments->first.data;
    uint64_t *hashes = arguments->hashes.data;
    if (holds(tiles, first))
        return 0;
    for (int64_t i = 0; i < tiles->bases.shape[0]; i++) {
        hashes[i] = hash_of(tiles, i);
        first[i] = i;
        for (int64_t earlier = 0; earlier < i; earlier++)
            if (hashes[earlier] == hashes[i] && first[earlier] == earlier && are_equal(tiles, i, earlier)) {
                first[i] = earlier;
                break;
            }
    }
    return 0;
}

struct take_units_arguments {
    unit_tiles tiles;
    ARRAY(2, uint64_t) out;
};

static void take_plan(
    uint64_t *restrict out, const uint64_t *restrict words, const int64_t *restrict plan, int64_t units)
{
    for (int64_t unit = 0; unit < units; unit++)
        memcpy(out + unit * UNIT_WORDS, words + plan[unit], UNIT_WORDS * sizeof *out);
}

/* Copy the units of each tile to a row of `out`. */
ENTRY(take_units)(const struct take_units_arguments *arguments)
{
    const unit_tiles *tiles = &arguments->tiles;
    int64_t units = tiles->plans.shape[1];
    for (int64_t i = 0; i < tiles->bases.shape[0]; i++)
        take_plan(
            arguments->out.data + i * units * UNIT_WORDS, tiles->words.data + tiles->bases.data[i], plan_of(tiles, i),
            units);
    return 0;
}
