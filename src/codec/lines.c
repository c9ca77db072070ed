#include "codec/lines.h"
#include "codec/bytes.h"
#include "codec/cpu.h"

#include <stddef.h>

/* Shorter lines are not worth a call each, and go by way of gpufi_predict_*. */
#define LINE_VALUES_MIN 8

bool gpufi_lines_init(gpufi_lines *lines, const gpufi_geometry *g, uint8_t transform, uint8_t axes,
                      uint64_t offset, const uint8_t *seed) {
  const gpufi_cpu *const cpu = gpufi_cpu_get();
  const size_t length = g->dims[g->ndim - 1] * g->component_count;
  memset(lines, 0, offsetof(gpufi_lines, above));
  if (cpu->inverse[gpufi_value_index(g->value_nbytes)] == NULL ||
      transform > GPUFI_TRANSFORM_ORDER || (axes != 0 && length < LINE_VALUES_MIN)) {
    return false;
  }
  lines->g = g;
  lines->cpu = cpu;
  lines->axes = axes;
  lines->seed = seed;
  /* Without prediction only the transform is left, and the chunk is one line. */
  lines->length = axes != 0 ? length : g->value_count;
  lines->outer = axes != 0 ? g->ndim - 2 : -1;
  while (lines->outer >= 0 && g->dims[lines->outer] == 1) {
    lines->outer--;
  }
  /* Sums instead of the neighbours one step back along `outer`: see gpufi_line. */
  if (seed != NULL && lines->outer >= 0 && (axes >> lines->outer & 1) &&
      length <= GPUFI_BLOCK_VALUES) {
    lines->line.above = lines->above;
  }
  lines->line.transform = transform;
  lines->line.offset = offset;
  return true;
}

/* Value `i` of the chunk, transformed. The line's kernels do this for whole vectors (value_impl.h);
 * here it is for the few values that lines start from. */
static uint64_t transformed(const gpufi_lines *lines, const uint8_t *raw, size_t i) {
  const size_t nbytes = lines->g->value_nbytes;
  const unsigned bits = 8 * (unsigned)nbytes;
  const uint64_t mask = UINT64_MAX >> (64 - bits);
  uint64_t x = 0;
  memcpy(&x, raw + i * nbytes, nbytes);
  const uint64_t sign = x >> (bits - 1);
  if (lines->line.transform == GPUFI_TRANSFORM_ROTATE) {
    return (x << 1 | sign) & mask;
  }
  return lines->line.transform == GPUFI_TRANSFORM_ORDER && sign ? x ^ mask >> 1 : x;
}

void gpufi_lines_seed(const gpufi_lines *lines, const uint8_t *raw, uint8_t seed[16]) {
  const size_t nbytes = lines->g->value_nbytes;
  memset(seed, 0, 16);
  for (size_t c = 0; c < lines->g->component_count && lines->axes != 0; c++) {
    const uint64_t x = transformed(lines, raw, c);
    memcpy(seed + c * nbytes, &x, nbytes);
  }
}

/* The neighbours of a line: one for each non-empty subset of the axes in `inside`, one step back
 * along each axis of the subset. An odd number of steps has a plus, an even one a minus: the
 * residual that Lorenzo prediction leaves is the sum of (-1)^|U| times the neighbour of U over all
 * subsets U, and the value itself (the empty one) is that less the others.
 *
 *   for line (z, y) with axes z and y inside:     + (z, y-1)  + (z-1, y)  - (z-1, y-1)
 *
 * With at most 3 axes beside the last there are 4 with a plus and 3 with a minus. */
static void set_neighbours(gpufi_lines *lines, uint32_t inside) {
  const gpufi_geometry *const g = lines->g;
  gpufi_line *const line = &lines->line;
  size_t back[1 << GPUFI_PREDICT_AXES] = {0};
  unsigned count = 1;
  line->plus_count = line->minus_count = 0;
  for (int32_t a = 0; a < g->ndim; a++) {
    if (inside >> a & 1) {
      for (unsigned k = 0; k < count; k++) {
        back[count + k] = back[k] + g->strides[a] * g->value_nbytes;
      }
      count *= 2;
    }
  }
  for (unsigned k = 1; k < count; k++) {
    if (__builtin_popcount(k) & 1) {
      line->plus[line->plus_count++] = back[k];
    } else {
      line->minus[line->minus_count++] = back[k];
    }
  }
}

/* What a line of a face starts from, where every axis of the set but the last of the array has
 * index 0. Its values are running sums from the value one step back along the last axis whose index
 * is not 0. The first line of the chunk starts from the seed; its first residual is stored as 0,
 * from which the offset was not taken off, though it is added to all, so the carry is less by it.
 */
static void chain(gpufi_lines *lines, const uint8_t *raw) {
  const gpufi_geometry *const g = lines->g;
  uint64_t *const carry = lines->line.carry;
  int32_t a = lines->outer;
  while (a >= 0 && lines->index[a] == 0) {
    a--;
  }
  for (size_t c = 0; c < g->component_count; c++) {
    if (a >= 0) {
      carry[c] = transformed(lines, raw, lines->at + c - g->strides[a]);
    } else if (lines->seed != NULL) {
      carry[c] = gpufi_load_value(lines->seed + c * g->value_nbytes, g->value_nbytes);
      carry[c] -= lines->line.offset;
    } else {
      carry[c] = transformed(lines, raw, c) - lines->line.offset;
    }
  }
}

/* Prepare the line that starts at value `at`; `raw` holds all earlier ones. The neighbours are set
 * only when they differ from those of the line before. */
static void start_line(gpufi_lines *lines, const uint8_t *raw) {
  const gpufi_geometry *const g = lines->g;
  const int32_t last = g->ndim - 1;
  uint32_t inside = 0;
  lines->left = lines->line.left = lines->line.length = lines->length;
  if (lines->axes == 0) {
    return;
  }
  for (int32_t a = 0; a < last; a++) {
    inside |= (uint32_t)(lines->index[a] != 0) << a;
  }
  inside &= lines->axes; /* no neighbour is outside the chunk, along an axis where the index is 0 */
  if (inside != lines->inside) {
    const bool summed = lines->line.above != NULL;
    set_neighbours(lines, summed ? inside & ~(1u << lines->outer) : inside);
    lines->inside = inside;
  }
  if (lines->line.above != NULL && lines->index[lines->outer] == 0) {
    memset(lines->above, 0, lines->length * g->value_nbytes);
  }
  const bool along = inside == 0 || (lines->axes >> last & 1);
  lines->line.step = along ? (unsigned)g->component_count : 0;
  lines->line.carry[0] = lines->line.carry[1] = 0;
  if (inside == 0) {
    chain(lines, raw);
  }
}

/* How many of the next `count` values one call of a kernel can take, because their neighbours are
 * the same numbers of bytes back: those to the end of the line; and those of the lines after it,
 * while only the index along `outer` changes, from one above 0 to another, or from 0 if the set
 * does not have that axis. A line of a face is alone, for its carry is its own.
 *
 * With sums from above, the step from index 0 along `outer` to 1 changes no neighbour. Even a line
 * of a face can then be followed by others, which start with a carry of 0 as they should, if the
 * last axis is in the set; if it is not, the line of the face is the only one that is a running
 * sum. */
static size_t alike(const gpufi_lines *lines, size_t count) {
  const int32_t a = lines->outer;
  const bool in_set = a >= 0 && (lines->axes >> a & 1);
  bool more = lines->inside != 0 && (!in_set || lines->index[a] != 0);
  if (lines->line.above != NULL) {
    more = lines->inside != 0 || (lines->axes >> (lines->g->ndim - 1) & 1);
  }
  size_t end = lines->left;
  if (more) {
    end += (lines->g->dims[a] - 1 - lines->index[a]) * lines->length;
  }
  return end < count ? end : count;
}

/* `count` values, of which alike() gave the number, are done: where the walk is now. */
static void advance(gpufi_lines *lines, size_t count) {
  lines->at += count;
  if (count < lines->left) {
    lines->left -= count;
    return;
  }
  count -= lines->left;
  const size_t line_count = 1 + count / lines->length, rest = count % lines->length;
  lines->left = rest != 0 ? lines->length - rest : 0;
  int32_t a = lines->outer;
  if (a >= 0) {
    lines->index[a] += line_count;
  }
  while (a > 0 && lines->index[a] >= lines->g->dims[a]) {
    lines->index[a] = 0;
    lines->index[--a]++;
  }
}

/* Start the next line if the one before is at its end, and return alike(). */
static size_t next_values(gpufi_lines *lines, const uint8_t *raw, size_t count) {
  if (lines->left == 0) {
    start_line(lines, raw);
  }
  return alike(lines, count);
}

void gpufi_lines_inverse(gpufi_lines *lines, const uint8_t *residuals, size_t count, uint8_t *raw) {
  const size_t nbytes = lines->g->value_nbytes;
  gpufi_line_inverse_fn *const inverse = lines->cpu->inverse[gpufi_value_index(nbytes)];
  while (count > 0) {
    const size_t here = next_values(lines, raw, count), at = lines->at;
    inverse(residuals, here, lines->g->value_count - at, &lines->line, raw + at * nbytes);
    advance(lines, here);
    residuals += here * nbytes;
    count -= here;
  }
}

void gpufi_lines_forward(gpufi_lines *lines, const uint8_t *raw, size_t count, uint8_t *residuals) {
  const size_t nbytes = lines->g->value_nbytes;
  gpufi_line_forward_fn *const forward = lines->cpu->forward[gpufi_value_index(nbytes)];
  for (size_t done = 0; done < count;) {
    const size_t here = next_values(lines, raw, count - done);
    forward(raw + lines->at * nbytes, here, &lines->line, residuals + done * nbytes);
    advance(lines, here);
    done += here;
  }
}
