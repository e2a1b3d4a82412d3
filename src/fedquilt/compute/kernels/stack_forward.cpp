// The products of examples with a layer's weights.

#include "stack.h"

namespace stack {

namespace {

constexpr int64_t ROWS = V == 16 ? 12 : 6;  // examples whose sums, two registers each, stay in registers

// R rows of X times a block of C registers of weights.
template <int64_t R, int64_t C>
void products(const float* x, int64_t inputs, const float* block, const float* offsets, float* out, int64_t width) {
  Lanes sums[R][C];
#pragma GCC unroll 12
  for (int64_t r = 0; r < R; r++)
#pragma GCC unroll 12
    for (int64_t c = 0; c < C; c++) sums[r][c] = get(offsets + c * V);
  for (int64_t p = 0; p < inputs; p++, block += C * V) {
    Lanes b[C];
#pragma GCC unroll 12
    for (int64_t c = 0; c < C; c++) b[c] = get(block + c * V);
#pragma GCC unroll 12
    for (int64_t r = 0; r < R; r++) {
      const float each = x[r * inputs + p];
#pragma GCC unroll 12
      for (int64_t c = 0; c < C; c++) sums[r][c] = fused(each, b[c], sums[r][c]);
    }
  }
#pragma GCC unroll 12
  for (int64_t r = 0; r < R; r++)
#pragma GCC unroll 12
    for (int64_t c = 0; c < C; c++) put(out + r * width + c * V, sums[r][c]);
}

template <int64_t R, int64_t C>
void some_products(int64_t rows, const float* x, int64_t inputs, const float* block, const float* offsets, float* out,
                   int64_t width) {
  if (rows == R) return products<R, C>(x, inputs, block, offsets, out, width);
  if constexpr (R > 1) some_products<R - 1, C>(rows, x, inputs, block, offsets, out, width);
}

}  // namespace

void forward(const Layer& layer, const float* x, int64_t m, const float* blocks, float* out) {
  const float *weights = blocks + layer.rows, *offsets = blocks + layer.offsets;
  for (int64_t j = 0; j < layer.padded; j += WIDE)
    each_group(m, ROWS, [&](int64_t i, int64_t rows) {
      const float *a = x + i * layer.inputs, *block = weights + j * layer.inputs;
      float* to = out + i * layer.padded + j;
      if (layer.padded - j >= WIDE) some_products<ROWS, 2>(rows, a, layer.inputs, block, offsets + j, to, layer.padded);
      else some_products<ROWS, 1>(rows, a, layer.inputs, block, offsets + j, to, layer.padded);
    });
}

}  // namespace stack
