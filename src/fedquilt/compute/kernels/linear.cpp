// xWᵀ + b for few rows x and many outputs, in one thread.
//
// General products first copy all of W into another layout, which takes a good part of their time if x has few rows. Here x is
// copied instead, so that its rows lie side by side in registers, and W is read as it is: a tile has a few outputs of WIDE rows.
// Every output is summed in the order of W's columns.

#include "lanes.h"

#include <vector>

namespace {

constexpr int64_t WIDE = V == 16 ? 32 : 16;
constexpr int64_t PARTS = WIDE / V;
constexpr int64_t OUTPUTS = V == 16 ? 12 : V == 8 ? 6 : 4;  // whose sums stay in registers
constexpr int64_t TOGETHER = 96;                            // outputs whose weights stay in a cache for all rows

// R outputs of P registers of rows; `column` holds WIDE rows side by side, one column after the other.
template <int64_t R, int64_t P>
void tile(const float* weights, const float* column, int64_t inputs, float* out) {
  Lanes sums[R][P];
#pragma GCC unroll 16
  for (int64_t r = 0; r < R; r++)
#pragma GCC unroll 16
    for (int64_t c = 0; c < P; c++) sums[r][c] = Lanes{};
  for (int64_t k = 0; k < inputs; k++, column += WIDE) {
    Lanes x[P];
#pragma GCC unroll 16
    for (int64_t c = 0; c < P; c++) x[c] = get(column + c * V);
#pragma GCC unroll 16
    for (int64_t r = 0; r < R; r++) {
      const float w = weights[r * inputs + k];
#pragma GCC unroll 16
      for (int64_t c = 0; c < P; c++) sums[r][c] = fused(w, x[c], sums[r][c]);
    }
  }
#pragma GCC unroll 16
  for (int64_t r = 0; r < R; r++)
#pragma GCC unroll 16
    for (int64_t c = 0; c < P; c++) put(out + r * WIDE + c * V, sums[r][c]);
}

template <int64_t R, int64_t P>
void some_outputs(int64_t outputs, const float* weights, const float* column, int64_t inputs, float* out) {
  if (outputs == R) return tile<R, P>(weights, column, inputs, out);
  if constexpr (R > 1) some_outputs<R - 1, P>(outputs, weights, column, inputs, out);
}

// The outputs of the rows of a group, in tiles; a last group whose rows fit into one register has one for each output.
void group_outputs(int64_t rows, int64_t outputs, const float* weights, const float* column, int64_t inputs, float* out) {
  for (int64_t j = 0; j < outputs; j += OUTPUTS) {
    const int64_t some = least(OUTPUTS, outputs - j);
    if (rows <= V) some_outputs<OUTPUTS, 1>(some, weights + j * inputs, column, inputs, out + j * WIDE);
    else some_outputs<OUTPUTS, PARTS>(some, weights + j * inputs, column, inputs, out + j * WIDE);
  }
}

// Asks for the `part`-th of `parts` of some weights before they are needed.
void prefetch(const float* weights, int64_t count, int64_t part, int64_t parts) {
  for (int64_t k = count * part / parts; k < count * (part + 1) / parts; k += 16) __builtin_prefetch(weights + k, 0, 2);
}

}  // namespace

extern "C" {

// x is (rows, inputs), `weights` (outputs, inputs), y (rows, outputs); `bias` may be null.
void linear_forward(const float* x, const float* weights, const float* bias, float* y, int64_t rows, int64_t inputs,
                    int64_t outputs) {
  const int64_t groups = (rows + WIDE - 1) / WIDE;
  std::vector<float> columns(groups * WIDE * inputs), block(TOGETHER * WIDE);
  for (int64_t i = 0; i < rows; i++) {
    float* to = columns.data() + i / WIDE * WIDE * inputs + i % WIDE;
    for (int64_t k = 0; k < inputs; k++) to[k * WIDE] = x[i * inputs + k];
  }
  for (int64_t first = 0; first < outputs; first += TOGETHER) {
    const int64_t count = least(TOGETHER, outputs - first), next = least(TOGETHER, outputs - first - count);
    for (int64_t group = 0; group < groups; group++) {
      prefetch(weights + (first + count) * inputs, next * inputs, group, groups);
      const int64_t some = least(WIDE, rows - group * WIDE);
      group_outputs(some, count, weights + first * inputs, columns.data() + group * WIDE * inputs, inputs, block.data());
      for (int64_t i = 0; i < some; i++) {
        float* to = y + (group * WIDE + i) * outputs + first;
        for (int64_t j = 0; j < count; j++) to[j] = block[j * WIDE + i] + (bias ? bias[first + j] : 0.0f);
      }
    }
  }
}
}
