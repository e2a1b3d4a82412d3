// The matrix product that convolutions are made of.

#include "convolution.h"

namespace convolution {

namespace {

constexpr int64_t PARTS = LANES / V;
constexpr int64_t ROWS = V == 16 ? 16 : V == 8 ? 6 : 4;  // whose sums stay in registers

template <int64_t R>
void block(const Left& left, const float* right, int64_t right_step, const float* start, int64_t start_step, float* out,
           int64_t out_step) {
  Lanes sums[R][PARTS];
#pragma GCC unroll 16
  for (int64_t r = 0; r < R; r++)
#pragma GCC unroll 16
    for (int64_t c = 0; c < PARTS; c++) sums[r][c] = Lanes{};
  for (int64_t i = 0; i < left.outer; i++) {
    const float* column = left.first + i * left.outer_step;
    for (int64_t j = 0; j < left.inner; j++, column += left.inner_step, right += right_step) {
      Lanes b[PARTS];
#pragma GCC unroll 16
      for (int64_t c = 0; c < PARTS; c++) b[c] = get(right + c * V);
#pragma GCC unroll 16
      for (int64_t r = 0; r < R; r++) {
        const float a = column[r * left.row_step];
#pragma GCC unroll 16
        for (int64_t c = 0; c < PARTS; c++) sums[r][c] = fused(a, b[c], sums[r][c]);
      }
    }
  }
#pragma GCC unroll 16
  for (int64_t r = 0; r < R; r++)
#pragma GCC unroll 16
    for (int64_t c = 0; c < PARTS; c++) put(out + r * out_step + c * V, start ? get(start + r * start_step + c * V) + sums[r][c] : sums[r][c]);
}

template <int64_t R>
void some_rows(int64_t rows, const Left& left, const float* right, int64_t right_step, const float* start, int64_t start_step,
               float* out, int64_t out_step) {
  if (rows == R) return block<R>(left, right, right_step, start, start_step, out, out_step);
  if constexpr (R > 1) some_rows<R - 1>(rows, left, right, right_step, start, start_step, out, out_step);
}

}  // namespace

void product(const Left& left, const float* right, int64_t right_step, int64_t width, const float* start, int64_t start_step,
             float* out, int64_t out_step) {
  const int64_t groups = (left.rows + ROWS - 1) / ROWS;  // as even as they can be: registers are best used so
  for (int64_t j = 0; j < width; j += LANES)
    for (int64_t group = 0; group < groups; group++) {
      const int64_t first = left.rows * group / groups, rows = left.rows * (group + 1) / groups - first;
      Left part = left;
      part.first += first * left.row_step;
      some_rows<ROWS>(rows, part, right + j, right_step, start ? start + first * start_step + j : start, start_step,
                      out + first * out_step + j, out_step);
    }
}

}  // namespace convolution
