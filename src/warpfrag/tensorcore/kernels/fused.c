/* The truncated fused dot-product-add on whole matrices: step by step, strip by strip, block by block.

   `strip.h` computes a step for many outputs at once, `sparse_steps.h` steps with a sparse A, `short_steps.h` steps
   with few products, and `exact_steps.h` steps that truncate no product. `exceptional.h` computes the *exceptional*
   outputs, which they do not cover, from codes. */

#include "tensorcore/native/entry.h"

/* The lowest level of x86-64 has no fused multiply-add, and therefore no kernels. */
#if defined(__aarch64__) || defined(__FMA__)

#include <stdlib.h>

#include "tensorcore/kernels/arguments.h"
#include "tensorcore/kernels/environment.h"
#include "tensorcore/kernels/exact_steps.h"
#include "tensorcore/kernels/exceptional.h"
#include "tensorcore/kernels/short_steps.h"

#define ROWS_AT_ONCE 256 /* number of rows of A whose accumulators stay in the L2 cache while all panels of B are processed */

/* Some rows of A, `first_row` to `last_row`, and a block of columns of B. */
typedef struct {
    const source_tile *tile;
    const prepared_tile *ready;
    int64_t first_row, last_row, block;
    int64_t width; /* number of columns, a multiple of those that are processed together */
} output_part;

/* Return the strip that begins with row `first`, at one step of the panel that begins at `first_step`. */
INLINED strip_step strip_at(const output_part *part, int64_t first, int64_t first_step, int64_t step, double *partials)
{
    const prepared_tile *ready = part->ready;
    const group_extents *e = &ready->extents;
    const fused_rule *rule = part->tile->rule;
    int64_t line = part->block * part->tile->depth + (rule->is_sparse ? 0 : step * e->group_rows);
    int64_t group = group_of(e, first, first_step, step), element = group * rule->products;
    strip_step strip = {
        .a_values = ready->a_values + element,
        .a_relatives = ready->a_relatives + element,
        .a_groups = ready->a_groups + group * e->a_words,
        .a_lines = ready->a_lines + element,
        .b_values = ready->b_values + line * BLOCK,
        .b_relatives = ready->b_relatives + line * BLOCK,
        .b_groups = ready->b_groups + (part->block * e->steps + step) * e->b_lines * BLOCK,
        .partials = partials,
        .products = rule->products,
        .sign_words = e->sign_words,
        .a_words = e->a_words,
        .width = part->width,
        .row = first,
        .step = step,
    };
    return strip;
}

/* Run one step of a strip, with the rounding mode towards zero; return true if any row is exceptional. */
NOT_INLINED bool run_step(strip_scratch *scratch, const fused_rule *rule, const strip_step *strip, bool checks_range)
{
    sum_start start = start_of(rule);
    int64_t kept = kept_bits(rule->round_to), group_rows = rule->is_sparse ? 2 * rule->products : rule->products;
    exponent_sums sums = rule->is_sparse
        ? max_exponent_sums_sparse(strip->a_relatives, strip->a_lines, strip->b_relatives, strip->products)
        : max_exponent_sums(strip->a_relatives, strip->b_relatives, strip->products);
    bool any_exceptional = store_max_exponents(scratch, &sums);
    if (checks_range)
        any_exceptional |= find_out_of_range(scratch, strip, &start);
    if (any_exceptional)
        save_exceptional_rows(scratch, strip);
    if (rule->is_sparse && !start.is_narrow && group_rows <= WORD)
        add_products_sparse(scratch, strip, &start, kept, WORD_START);
    else if (rule->is_sparse)
        add_products_sparse(scratch, strip, &start, kept, GENERAL_START);
    else if (!start.is_narrow && group_rows < WORD)
        add_products(scratch, strip, &start, kept, FAST_START);
    else
        add_products(scratch, strip, &start, kept, GENERAL_START);
    return any_exceptional;
}

/* Add the sum of the steps, which started from zero, to C; round the result to the nearest number of D's format. */
INLINED void finish_with_c(double *accumulators, const double *from_zero, bool is_f16, int64_t width)
{
    for (int row = 0; row < STRIP; row++)
        for (int64_t j = row * BLOCK; j < row * BLOCK + width; j++)
            accumulators[j] = is_f16 ? round_f16(accumulators[j] + from_zero[j])
                                     : (float)accumulators[j] + (float)from_zero[j];
}

/* Round to nearest after a step; return true if a new C is so large that its exponents may be out of range. */
NOT_INLINED bool finish_step(
    const strip_scratch *scratch, const output_part *part, const strip_step *strip, bool any_exceptional, double *c_to_add)
{
    const fused_rule *rule = part->tile->rule;
    bool is_large = false;
    if (rule->round_to == TO_F16_RN) {
        round_to_f16(strip);
        is_large = any_large(strip->partials, STRIP * BLOCK);
    }
    if (any_exceptional)
        redo_exceptional_rows(scratch, part->tile, strip, part->last_row, part->block * BLOCK);
    if (c_to_add)
        finish_with_c(c_to_add, scratch->from_zero, rule->d_format == IS_F16, strip->width);
    return is_large;
}

/* Run all steps of any rule. */
static void run_steps(strip_scratch *scratch, const output_part *part, bool checks_range)
{
    const fused_rule *rule = part->tile->rule;
    const group_extents *e = &part->ready->extents;
    for (int64_t first_step = 0; first_step < e->steps; first_step += e->panel_steps)
        for (int64_t row = part->first_row; row <= part->last_row; row += STRIP) {
            double *c = scratch->accumulators + (row - part->first_row) * BLOCK;
            for (int64_t step = first_step; step < first_step + steps_of_panel(e, first_step); step++) {
                strip_step strip = strip_at(part, row, first_step, step, rule->adds_c_last ? scratch->from_zero : c);
                if (rule->adds_c_last && step % rule->steps == 0)
                    memset(scratch->from_zero, 0, sizeof scratch->from_zero);
                bool any_exceptional = run_step(scratch, rule, &strip, checks_range);
                bool adds_c = rule->adds_c_last && step % rule->steps == rule->steps - 1;
                if (rule->round_to == TO_F16_RN || any_exceptional || adds_c) {
                    round_floats(TO_NEAREST);
                    checks_range |= finish_step(scratch, part, &strip, any_exceptional, adds_c ? c : NULL);
                    round_floats(TOWARDS_ZERO);
                }
            }
        }
}

/* The range of steps in a panel, and the next strip and step to run. */
typedef struct {
    int64_t first_step, last_step; /* the last one is exclusive */
    int64_t row, step;
} step_panel;

INLINED short_step short_step_at(const output_part *part, const step_panel *panel, float *partials)
{
    const prepared_tile *ready = part->ready;
    const group_extents *e = &ready->extents;
    int64_t products = part->tile->rule->products;
    int64_t line = part->block * part->tile->depth + (part->tile->rule->is_sparse ? 0 : panel->step * products);
    int64_t group = group_of(e, panel->row, panel->first_step, panel->step);
    short_step at = {
        .a_values = ready->a_values + group * products,
        .a_relatives = ready->a_relatives + group * products,
        .a_bytes = ready->a_bytes + group * e->a_bytes,
        .a_lines = ready->a_lines + group * products,
        .b_values = ready->b_values + line * BLOCK,
        .b_relatives = ready->b_relatives + line * BLOCK,
        .b_bytes = ready->b_bytes + (part->block * e->steps + panel->step) * e->b_byte_lines * BLOCK,
        .partials = partials + (panel->row - part->first_row) * BLOCK,
        .width = part->width,
    };
    return at;
}

/* Run the steps of each strip, from the next one on. Stop after a step with an exceptional row and return true, or run
   to the end and return false. The rounding mode is towards zero. */
INLINED bool run_panel(
    strip_scratch *scratch, const output_part *part, step_panel *panel, int64_t products, bool is_sparse, int sign_bytes,
    int fraction_bits)
{
    for (; panel->row <= part->last_row; panel->row += STRIP, panel->step = panel->first_step)
        while (panel->step < panel->last_step) {
            short_step at = short_step_at(part, panel, scratch->partials_f32);
            panel->step++;
            if (run_short_step(scratch, &at, products, is_sparse, sign_bytes, fraction_bits))
                return true;
        }
    return false;
}

typedef bool panel_runner(strip_scratch *scratch, const output_part *part, step_panel *panel);

#define DEFINE_PANEL_RUNNER(name, products, is_sparse, sign_bytes, fraction_bits)                     \
    NOT_INLINED bool name(strip_scratch *scratch, const output_part *part, step_panel *panel)         \
    {                                                                                                 \
        return run_panel(scratch, part, panel, products, is_sparse, sign_bytes, fraction_bits);       \
    }

DEFINE_PANEL_RUNNER(run_16_of_25_bits, 16, false, 2, 25)
DEFINE_PANEL_RUNNER(run_8_of_25_bits, 8, false, 1, 25)
DEFINE_PANEL_RUNNER(run_8_of_24_bits, 8, false, 1, 24)
DEFINE_PANEL_RUNNER(run_4_of_25_bits, 4, false, 1, 25)
DEFINE_PANEL_RUNNER(run_4_of_24_bits, 4, false, 1, 24)
DEFINE_PANEL_RUNNER(run_4_of_23_bits, 4, false, 1, 23)
DEFINE_PANEL_RUNNER(run_sparse_16_of_25_bits, 16, true, 4, 25)
DEFINE_PANEL_RUNNER(run_sparse_8_of_25_bits, 8, true, 2, 25)
DEFINE_PANEL_RUNNER(run_sparse_4_of_25_bits, 4, true, 1, 25)

/* Return the loops for a rule with short steps, or NULL if the rule must run with long steps. */
static panel_runner *panel_runner_of(const fused_rule *rule)
{
    static const struct {
        int64_t products, is_sparse, fraction_bits;
        panel_runner *run;
    } runners[] = {
        {16, false, 25, run_16_of_25_bits},
        {8, false, 25, run_8_of_25_bits},
        {8, false, 24, run_8_of_24_bits},
        {4, false, 25, run_4_of_25_bits},
        {4, false, 24, run_4_of_24_bits},
        {4, false, 23, run_4_of_23_bits},
        {16, true, 25, run_sparse_16_of_25_bits},
        {8, true, 25, run_sparse_8_of_25_bits},
        {4, true, 25, run_sparse_4_of_25_bits},
    };
    for (size_t index = 0; rule->is_short && index < sizeof runners / sizeof *runners; index++)
        if (runners[index].products == rule->products && runners[index].is_sparse == rule->is_sparse
            && runners[index].fraction_bits == rule->fraction_bits)
            return runners[index].run;
    return NULL;
}

/* Repeat the step at which `run_panel` stopped, for its exceptional rows. */
NOT_INLINED void redo_short_step(strip_scratch *scratch, const output_part *part, const step_panel *panel)
{
    float *partials = scratch->partials_f32 + (panel->row - part->first_row) * BLOCK;
    strip_step strip = strip_at(part, panel->row, panel->first_step, panel->step - 1, scratch->from_zero);
    f64_from_f32(scratch->from_zero, partials, STRIP * BLOCK);
    redo_exceptional_rows(scratch, part->tile, &strip, part->last_row, part->block * BLOCK);
    f32_from_f64(partials, scratch->from_zero, STRIP * BLOCK);
}

/* Run all steps if they are short and no common exponent can be out of range. */
static void run_short_steps(strip_scratch *scratch, const output_part *part, panel_runner *run)
{
    const group_extents *e = &part->ready->extents;
    for (int64_t first = 0; first < e->steps; first += e->panel_steps) {
        step_panel panel = {first, first + steps_of_panel(e, first), part->first_row, first};
        while (run(scratch, part, &panel)) {
            round_floats(TO_NEAREST);
            redo_short_step(scratch, part, &panel);
            round_floats(TOWARDS_ZERO);
        }
    }
}

/* Run all steps of a block for which `is_exact` holds. The rounding mode is to nearest. */
NOT_INLINED void run_exact_steps(strip_scratch *scratch, const output_part *part)
{
    const fused_rule *rule = part->tile->rule;
    f64v start = splat_f64(1.5 * power_of_two(52 + rule->unit_exponent));
    const group_extents *e = &part->ready->extents;
    int64_t kept = kept_bits(rule->round_to);
    for (int64_t first_step = 0; first_step < e->steps; first_step += e->panel_steps)
        for (int64_t row = part->first_row; row <= part->last_row; row += STRIP)
            for (int64_t step = first_step; step < first_step + steps_of_panel(e, first_step); step += rule->steps) {
                double *c = scratch->accumulators + (row - part->first_row) * BLOCK;
                strip_step strip = strip_at(part, row, first_step, step, c);
                if (rule->is_sparse)
                    run_exact_instruction_sparse(&strip, rule->steps, start, kept);
                else if (rule->products == 16) /* loops of constant length are unrolled */
                    run_exact_instruction(&strip, rule->steps, 16, start, kept);
                else
                    run_exact_instruction(&strip, rule->steps, rule->products, start, kept);
            }
}

/* The smallest and largest exponent of a set. */
typedef struct {
    int32_t lowest, highest;
} exponent_span;

/* Extend a span by the largest exponents of groups, `pitch` apart, except groups that are all 0. */
INLINED exponent_span span_with(exponent_span span, const int32_t *groups, int64_t count, int64_t pitch)
{
    for (int64_t group = 0; group < count; group++) {
        int32_t largest = groups[group * pitch], lowest = largest == EXPONENT_OF_ZERO ? EXPONENT_OF_SPECIAL : largest;
        span.lowest = lowest < span.lowest ? lowest : span.lowest;
        span.highest = largest > span.highest ? largest : span.highest;
    }
    return span;
}

INLINED bool pairs_out_of_range(exponent_span a, exponent_span b)
{
    return a.lowest + b.lowest < MIN_PAIR_EXPONENT || a.highest + b.highest > MAX_PAIR_EXPONENT;
}

/* Read C of a block of columns; columns past N are set to 1, and their results are never read.

   A step turns -0 into +0; if C enters a step, this is done here. Rows past the end repeat the last row. */
NOT_INLINED void read_c(strip_scratch *scratch, const output_part *part)
{
    const source_tile *tile = part->tile;
    const float zero = tile->rule->adds_c_last ? -0.0f : 0.0f; /* adding -0 changes nothing */
    int64_t first_column = part->block * BLOCK, width = smaller(BLOCK, tile->width - first_column);
    int64_t strips = (part->last_row - part->first_row) / STRIP + 1;
    for (int64_t row = 0; row < strips * STRIP; row++) {
        const uint32_t *codes = tile->c + smaller(part->first_row + row, part->last_row) * tile->width + first_column;
        double *to = scratch->accumulators + row * BLOCK;
        if (tile->rule->c_format == IS_F16)
            for (int64_t j = 0; j < width; j++)
                to[j] = read_accumulator(codes[j], IS_F16) + zero;
        else
            for (int64_t j = 0; j < width; j++)
                to[j] = read_accumulator(codes[j], IS_F32) + zero;
        for (int64_t j = width; j < BLOCK; j++)
            to[j] = 1.0;
    }
}

/* Round the accumulators of a block of columns to D's codes. */
NOT_INLINED void write_d(const strip_scratch *scratch, const output_part *part)
{
    const source_tile *tile = part->tile;
    int64_t first_column = part->block * BLOCK, width = smaller(BLOCK, tile->width - first_column);
    for (int64_t row = part->first_row; row <= part->last_row; row++) {
        uint32_t *codes = tile->out + row * tile->width + first_column;
        const double *from = scratch->accumulators + (row - part->first_row) * BLOCK;
        if (tile->rule->d_format == IS_F16)
            for (int64_t j = 0; j < width; j++)
                codes[j] = write_accumulator((float)from[j], IS_F16);
        else
            for (int64_t j = 0; j < width; j++)
                codes[j] = write_accumulator((float)from[j], IS_F32);
    }
}

/* Scratch memory for `rows` rows; floats start as zeros, because even unused subnormals slow x86-64 down. */
static strip_scratch *new_scratch(int64_t rows)
{
    int64_t outputs = (smaller(rows, ROWS_AT_ONCE) + STRIP) * BLOCK;
    strip_scratch *scratch = calloc(1, sizeof *scratch + (size_t)outputs * (sizeof(double) + sizeof(float)) + CACHE_LINE);
    if (scratch) {
        uintptr_t at = ((uintptr_t)(scratch + 1) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
        scratch->accumulators = take(&at, outputs, sizeof(double));
        scratch->partials_f32 = take(&at, outputs, sizeof(float));
    }
    return scratch;
}

INLINED bool any_heavy(const output_part *part)
{
    uint8_t heavy = 0;
    for (int64_t row = part->first_row; row <= part->last_row; row++)
        heavy |= part->ready->a_is_heavy[row];
    return heavy;
}

/* Run all steps for some rows, at most ROWS_AT_ONCE, and column blocks, from codes of C to codes of D. */
static void fused_part(
    strip_scratch *scratch, const source_tile *tile, const prepared_tile *ready, int64_t first_row, int64_t last_row,
    int64_t first_block, int64_t last_block)
{
    const fused_rule *rule = tile->rule;
    const group_extents *e = &ready->extents;
    const exponent_span empty = {EXPONENT_OF_SPECIAL, EXPONENT_OF_ZERO};
    int64_t strips = (last_row - first_row - 1) / STRIP + 1, strip_outputs = strips * STRIP * BLOCK;
    panel_runner *run_short = panel_runner_of(rule);
    exponent_span span_a = empty;
    double sum_a = 0.0;
    for (int64_t step = 0; step < e->steps; step += e->panel_steps) {
        int64_t first = group_of(e, first_row, step, step), groups = strips * STRIP * steps_of_panel(e, step);
        span_a = span_with(span_a, ready->a_groups + first * e->a_words, groups, e->a_words);
        if (may_be_exact(rule))
            sum_a = fmax(sum_a, largest_sum(ready->a_values + first * rule->products, groups, rule->products));
    }
    for (int64_t block = first_block; block < last_block; block++) {
        output_part part = {
            .tile = tile,
            .ready = ready,
            .first_row = first_row,
            .last_row = last_row - 1,
            .block = block,
            .width = padded(tile->width - block * BLOCK, rule->is_sparse),
        };
        exponent_span span_b = empty;
        for (int64_t step = 0; step < e->steps; step++)
            span_b = span_with(span_b, ready->b_groups + (block * e->steps + step) * e->b_lines * BLOCK, part.width, 1);
        read_c(scratch, &part);
        bool checks_range =
            pairs_out_of_range(span_a, span_b) || any_large(scratch->accumulators, strip_outputs);
        if (!checks_range && is_exact(rule, sum_a, span_b.highest)) {
            run_exact_steps(scratch, &part);
        } else if (run_short && !checks_range && !any_heavy(&part)) {
            f32_from_f64(scratch->partials_f32, scratch->accumulators, strip_outputs);
            round_floats(TOWARDS_ZERO);
            run_short_steps(scratch, &part, run_short);
            round_floats(TO_NEAREST);
            f64_from_f32(scratch->accumulators, scratch->partials_f32, strip_outputs);
        } else {
            round_floats(TOWARDS_ZERO);
            run_steps(scratch, &part, checks_range);
            round_floats(TO_NEAREST);
        }
        write_d(scratch, &part);
    }
}

/* One large tile: its operands are prepared once, in the caller's memory, then blocks of outputs run on many
   threads. */
struct tile_arguments {
    ARRAY(2, const uint32_t) a, b, c;
    ARRAY(2, uint32_t) out;
    ARRAY(2, const int32_t) met_rows, scale_a, scale_b; /* empty if there are none */
    ARRAY(1, const int32_t) order, b_order, b_places;
    ARRAY(1, const fused_rule) rule;
    ARRAY(1, char) memory;
    int64_t first, last;             /* rows of A, or blocks of columns of B */
    int64_t first_block, last_block; /* blocks of columns of D */
};

INLINED const int32_t *or_null(const int32_t *data, int64_t extent)
{
    return extent ? data : NULL;
}

INLINED source_tile tile_of(const struct tile_arguments *p)
{
    source_tile tile = {
        .rule = p->rule.data,
        .a = p->a.data,
        .b = p->b.data,
        .c = p->c.data,
        .out = p->out.data,
        .order = p->order.data,
        .b_order = p->b_order.data,
        .b_places = p->b_places.data,
        .met_rows = or_null(p->met_rows.data, p->met_rows.shape[0]),
        .scale_a = or_null(p->scale_a.data, p->scale_a.shape[0]),
        .scale_b = or_null(p->scale_b.data, p->scale_b.shape[0]),
        .height = p->out.shape[0],
        .width = p->out.shape[1],
        .stored = p->a.shape[1],
        .depth = p->b.shape[0],
    };
    return tile;
}

INLINED uintptr_t next_line(const void *address)
{
    return ((uintptr_t)address + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

INLINED prepared_tile prepared_of(const struct tile_arguments *p, const source_tile *tile)
{
    prepared_tile ready;
    lay_out(&ready, tile, next_line(p->memory.data));
    return ready;
}

struct layout_arguments {
    ARRAY(1, int64_t) layout;
    ARRAY(1, const fused_rule) rule;
    int64_t height, width, stored, depth;
};

/* Compute the size of the memory for prepared operands, and the offsets of B's groups, as words and as bytes, from the
   first cache line. */
ENTRY(fused_layout)(const struct layout_arguments *p)
{
    source_tile tile = {
        .rule = p->rule.data, .height = p->height, .width = p->width, .stored = p->stored, .depth = p->depth};
    prepared_tile ready;
    p->layout.data[0] = lay_out(&ready, &tile, 0) + CACHE_LINE;
    p->layout.data[1] = (int64_t)(uintptr_t)ready.b_groups;
    p->layout.data[2] = (int64_t)(uintptr_t)ready.b_bytes;
    return 0;
}

/* Prepare rows of A. */
ENTRY(prepare_rows)(const struct tile_arguments *p)
{
    source_tile tile = tile_of(p);
    prepared_tile ready = prepared_of(p, &tile);
    void *memory = malloc((size_t)row_scratch_bytes(&tile));
    if (!memory)
        return NO_MEMORY;
    control_word caller = enter_environment(TO_NEAREST);
    prepare_a(&tile, &ready, memory, p->first, p->last);
    restore_environment(caller);
    free(memory);
    return 0;
}

/* Prepare blocks of columns of B. */
ENTRY(prepare_blocks)(const struct tile_arguments *p)
{
    source_tile tile = tile_of(p);
    prepared_tile ready = prepared_of(p, &tile);
    control_word caller = enter_environment(TO_NEAREST);
    prepare_b(&tile, &ready, p->first, p->last);
    restore_environment(caller);
    return 0;
}

/* Compute rows and blocks of columns of D from prepared operands. */
ENTRY(fused_block)(const struct tile_arguments *p)
{
    source_tile tile = tile_of(p);
    prepared_tile ready = prepared_of(p, &tile);
    strip_scratch *scratch = new_scratch(p->last - p->first);
    if (!scratch)
        return NO_MEMORY;
    control_word caller = enter_environment(TO_NEAREST);
    for (int64_t row = p->first; row < p->last; row += ROWS_AT_ONCE)
        fused_part(scratch, &tile, &ready, row, smaller(row + ROWS_AT_ONCE, p->last), p->first_block, p->last_block);
    restore_environment(caller);
    free(scratch);
    return 0;
}

/* Whole tiles, one after the other, for tiles that are too small to split among threads. */
struct tiles_arguments {
    ARRAY(3, const uint32_t) a, b, c;
    ARRAY(3, const int32_t) columns, scale_a, scale_b; /* empty if there are none */
    ARRAY(1, const int32_t) orders;                    /* `order`, `b_order` and `b_places`, in sequence */
    ARRAY(1, const fused_rule) rule;
    ARRAY(3, uint32_t) out;
    int64_t first_tile, last_tile;
};

/* Find, for each row of a sparse A, the rows of B that its stored elements multiply, in the order of addition. */
static void find_met_rows(int32_t *met_rows, const int32_t *columns, const source_tile *tile)
{
    for (int64_t i = 0; i < tile->height; i++)
        for (int64_t index = 0; index < tile->stored; index++)
            met_rows[i * tile->stored + index] = columns[i * tile->stored + tile->order[index]];
}

ENTRY(fused_tiles)(const struct tiles_arguments *p)
{
    int64_t height = p->out.shape[1], width = p->out.shape[2], stored = p->a.shape[2], depth = p->b.shape[1];
    const int32_t *orders = p->orders.data;
    bool is_sparse = p->columns.shape[0] > 0, is_scaled = p->scale_a.shape[0] > 0;
    source_tile tile = {
        .rule = p->rule.data,
        .order = orders,
        .b_order = orders + stored,
        .b_places = orders + stored + depth,
        .height = height,
        .width = width,
        .stored = stored,
        .depth = depth,
    };
    prepared_tile ready;
    int64_t met_bytes = is_sparse ? height * stored * (int64_t)sizeof(int32_t) : 0;
    char *memory = malloc((size_t)(lay_out(&ready, &tile, 0) + CACHE_LINE + row_scratch_bytes(&tile) + met_bytes));
    strip_scratch *scratch = new_scratch(height);
    if (!memory || !scratch) {
        free(memory);
        free(scratch);
        return NO_MEMORY;
    }
    int32_t *met_rows = (int32_t *)memory;
    void *row_memory = memory + met_bytes;
    lay_out(&ready, &tile, next_line(memory + met_bytes + row_scratch_bytes(&tile)));
    control_word caller = enter_environment(TO_NEAREST);
    for (int64_t index = p->first_tile; index < p->last_tile; index++) {
        tile.a = p->a.data + index * height * stored;
        tile.b = p->b.data + index * depth * width;
        tile.c = p->c.data + index * height * width;
        tile.out = p->out.data + index * height * width;
        if (is_sparse) {
            find_met_rows(met_rows, p->columns.data + index * height * stored, &tile);
            tile.met_rows = met_rows;
        }
        if (is_scaled) {
            tile.scale_a = p->scale_a.data + index * height * p->scale_a.shape[2];
            tile.scale_b = p->scale_b.data + index * p->scale_b.shape[1] * width;
        }
        prepare_a(&tile, &ready, row_memory, 0, height);
        prepare_b(&tile, &ready, 0, ready.extents.blocks);
        for (int64_t row = 0; row < height; row += ROWS_AT_ONCE)
            fused_part(scratch, &tile, &ready, row, smaller(row + ROWS_AT_ONCE, height), 0, ready.extents.blocks);
    }
    restore_environment(caller);
    free(scratch);
    free(memory);
    return 0;
}

#endif
