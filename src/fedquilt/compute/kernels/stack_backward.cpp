// The gradient of a layer's inputs.

#include "stack.h"

namespace stack {

namespace {

constexpr int64_t SIDES = V == 16 ? 4 : 2;  // inputs whose gradients, PARTS registers each for up to
constexpr int64_t EACH = V == 16 ? 5 : 3;   // so many examples, stay in registers

// The gradient of P inputs for R examples.
template <int64_t P, int64_t R>
void input_gradients(const Layer& layer, const float* d, const float* weights, int64_t p, float* d_x, int64_t width) {
  Lanes sums[R][P][PARTS] = {};
  const auto add = [&](int64_t j, int64_t part) __attribute__((always_inline)) {
    const int64_t block = j / WIDE * WIDE, wide = least(layer.padded - block, WIDE);
    const float* from = weights + block * layer.inputs + p * wide + (j - block);
    Lanes w[P];
#pragma GCC unroll 12
    for (int64_t q = 0; q < P; q++) w[q] = get(from + q * wide);
#pragma GCC unroll 12
    for (int64_t r = 0; r < R; r++) {
      const Lanes each = get(d + r * layer.padded + j);
#pragma GCC unroll 12
      for (int64_t q = 0; q < P; q++) sums[r][q][part] = fused(w[q], each, sums[r][q][part]);
    }
  };
  int64_t j = 0;
  for (; j + LANES <= layer.padded; j += LANES)
#pragma GCC unroll 12
    for (int64_t part = 0; part < PARTS; part++) add(j + part * V, part);
#pragma GCC unroll 12
  for (int64_t part = 0; part < PARTS - 1; part++)
    if (j + part * V < layer.padded) add(j + part * V, part);
#pragma GCC unroll 12
  for (int64_t r = 0; r < R; r++)
#pragma GCC unroll 12
    for (int64_t q = 0; q < P; q++) d_x[r * width + p + q] = sum(sums[r][q]);
}

template <int64_t P, int64_t R>
void some_gradients(int64_t rows, const Layer& layer, const float* d, const float* weights, int64_t p, float* d_x,
                    int64_t width) {
  if (rows == R) return input_gradients<P, R>(layer, d, weights, p, d_x, width);
  if constexpr (R > 1) some_gradients<P, R - 1>(rows, layer, d, weights, p, d_x, width);
}

}  // namespace

void backward(const Layer& layer, const float* d, int64_t m, const float* blocks, float* d_x, int64_t width) {
  const float* weights = blocks + layer.rows;
  const int64_t together = layer.inputs / SIDES * SIDES;
  for (int64_t p = 0; p < layer.inputs; p += p < together ? SIDES : 1)
    each_group(m, EACH, [&](int64_t i, int64_t rows) {
      const float* of_outputs = d + i * layer.padded;
      if (p < together) some_gradients<SIDES, EACH>(rows, layer, of_outputs, weights, p, d_x + i * width, width);
      else some_gradients<1, EACH>(rows, layer, of_outputs, weights, p, d_x + i * width, width);
    });
}

}  // namespace stack
