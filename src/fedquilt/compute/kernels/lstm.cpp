// One LSTM layer over a batch of sequences, forward and backward, in one thread.
//
// What can be done for all places at once (inputs times weights, the gradients of weights) is left to PyTorch. Here is what
// goes from place to place: the product with the recurrent weights, whose rows are few, and the gates.
//
// Layout, as in PyTorch: rows of the weights are the gates i, f, g, o, h of each. Arrays are contiguous; T places, N
// sequences, H units. `h` and `c` have T + 1 places, the first of which is the start. `peepholes` is null or (3, H): of i, f
// and o.

#include "lanes.h"

#include <vector>

namespace {

constexpr int64_t ROWS = V == 16 ? 12 : 6;  // whose sums, two registers each, stay in registers
constexpr int64_t WIDE = 2 * V;

inline Lanes sigmoid(Lanes x) { return 1.0f / (1.0f + exponential(-x)); }

inline Lanes hyperbolic_tangent(Lanes x) {
  const Lanes far = 1.0f - 2.0f / (1.0f + exponential(2.0f * x));  // near 0 this would lose digits
  const Lanes s = x * x;
  const Lanes high = fused(fused(all(62.0f / 2835.0f), s, -17.0f / 315.0f), s, 2.0f / 15.0f);
  const Lanes near = fused(x * s, fused(high, s, -1.0f / 3.0f), x);
  return s < all(0.04f) ? near : far;
}

// The right-hand side of a product in blocks of WIDE columns, row after row; what stands in columns that are not there does
// not matter. The memory is kept: it is the same for every step.
const std::vector<float>& packed(const float* b, int64_t row, int64_t column, int64_t rows, int64_t columns) {
  static thread_local std::vector<float> blocks;
  blocks.resize((columns + WIDE - 1) / WIDE * WIDE * rows);
  float* block = blocks.data();
  for (int64_t j = 0; j < columns; j += WIDE, block += WIDE * rows) {
    const int64_t width = columns - j < WIDE ? columns - j : WIDE;
    for (int64_t q = 0; q < rows; q += 16)
      for (int64_t l = 0; l < width; l++)
        for (int64_t p = q; p < rows && p < q + 16; p++) block[p * WIDE + l] = b[p * row + (j + l) * column];
  }
  return blocks;
}

// R rows of a product: c (+)= a b, for one block of b's columns.
template <int64_t R>
void tile(const float* a, const float* block, int64_t k, float* c, int64_t n, int64_t width, bool add) {
  Lanes sums[R][2] = {};
  for (int64_t p = 0; p < k; p++, block += WIDE) {
    const Lanes b0 = *reinterpret_cast<const Unaligned*>(block), b1 = *reinterpret_cast<const Unaligned*>(block + V);
#pragma GCC unroll 12
    for (int64_t r = 0; r < R; r++) {
      const float x = a[r * k + p];
      sums[r][0] = fused(x, b0, sums[r][0]);
      sums[r][1] = fused(x, b1, sums[r][1]);
    }
  }
  float values[R][WIDE];
  std::memcpy(values, sums, sizeof values);
  for (int64_t r = 0; r < R; r++)
    for (int64_t l = 0; l < width; l++) c[r * n + l] = add ? c[r * n + l] + values[r][l] : values[r][l];
}

template <int64_t R>
void rows_of(int64_t rows, const float* a, const float* block, int64_t k, float* c, int64_t n, int64_t width, bool add) {
  if (rows == R) return tile<R>(a, block, k, c, n, width, add);
  if constexpr (R > 1) rows_of<R - 1>(rows, a, block, k, c, n, width, add);
}

// c (+)= a b, where a is (m, k), c is (m, n) and b is packed. A block of b is read once, for groups of rows as even as they can
// be.
void product(const float* a, int64_t m, int64_t k, const std::vector<float>& b, float* c, int64_t n, bool add) {
  const int64_t groups = (m + ROWS - 1) / ROWS;
  for (int64_t j = 0; j < n; j += WIDE)
    for (int64_t group = 0; group < groups; group++) {
      const int64_t i = m * group / groups, rows = m * (group + 1) / groups - i, width = n - j < WIDE ? n - j : WIDE;
      rows_of<ROWS>(rows, a + i * k, b.data() + j * k, k, c + i * n + j, n, width, add);
    }
}

}  // namespace

extern "C" {

// `gates` (T, N, 4H) holds what the inputs and biases give; afterwards the values of i, f, g and o.
void lstm_forward(float* gates, const float* weights, const float* peepholes, float* h, float* c, int64_t T, int64_t N,
                  int64_t H) {
  const std::vector<float>& right = packed(weights, 1, H, H, 4 * H);
  for (int64_t t = 0; t < T; t++) {
    float* at_t = gates + t * N * 4 * H;
    product(h + t * N * H, N, H, right, at_t, 4 * H, true);
    for (int64_t row = 0; row < N; row++) {
      float* gate = at_t + row * 4 * H;
      const float* before = c + (t * N + row) * H;
      float *cell = c + ((t + 1) * N + row) * H, *out = h + ((t + 1) * N + row) * H;
      for (int64_t j = 0; j < H; j += V) {
        const int64_t m = H - j < V ? H - j : V;
        const Lanes old = load(before + j, m);
        Lanes i = load(gate + j, m), f = load(gate + H + j, m), o = load(gate + 3 * H + j, m);
        const Lanes g = hyperbolic_tangent(load(gate + 2 * H + j, m));
        if (peepholes) i += load(peepholes + j, m) * old, f += load(peepholes + H + j, m) * old;
        i = sigmoid(i), f = sigmoid(f);
        const Lanes fresh = fused(f, old, i * g);
        if (peepholes) o += load(peepholes + 2 * H + j, m) * fresh;
        o = sigmoid(o);
        store(gate + j, i, m), store(gate + H + j, f, m), store(gate + 2 * H + j, g, m), store(gate + 3 * H + j, o, m);
        store(cell + j, fresh, m), store(out + j, o * hyperbolic_tangent(fresh), m);
      }
    }
  }
}

// `gates` (T, N, 4H) holds the values of i, f, g and o; afterwards the gradient of what `lstm_forward` found there. `d_out`
// is (T, N, H), of the outputs; `d_h` and `d_c` (N, H) are of the last h and c, besides, and become those of the start.
void lstm_backward(float* gates, const float* weights, const float* peepholes, const float* c, const float* d_out,
                   float* d_h, float* d_c, int64_t T, int64_t N, int64_t H) {
  const std::vector<float>& right = packed(weights, H, 1, 4 * H, H);
  for (int64_t t = T - 1; t >= 0; t--) {
    for (int64_t row = 0; row < N; row++) {
      float* gate = gates + (t * N + row) * 4 * H;
      const float *before = c + (t * N + row) * H, *cell = c + ((t + 1) * N + row) * H, *d = d_out + (t * N + row) * H;
      float *d_cell = d_c + row * H, *d_state = d_h + row * H;
      for (int64_t j = 0; j < H; j += V) {
        const int64_t m = H - j < V ? H - j : V;
        const Lanes i = load(gate + j, m), f = load(gate + H + j, m), g = load(gate + 2 * H + j, m);
        const Lanes o = load(gate + 3 * H + j, m), bent = hyperbolic_tangent(load(cell + j, m));
        const Lanes out = load(d_state + j, m) + load(d + j, m);
        const Lanes d_o = out * bent * o * (1.0f - o);
        Lanes here = load(d_cell + j, m) + out * o * (1.0f - bent * bent);
        if (peepholes) here += d_o * load(peepholes + 2 * H + j, m);
        const Lanes d_i = here * g * i * (1.0f - i), d_f = here * load(before + j, m) * f * (1.0f - f);
        Lanes back = here * f;
        if (peepholes) back += d_i * load(peepholes + j, m) + d_f * load(peepholes + H + j, m);
        store(gate + j, d_i, m), store(gate + H + j, d_f, m), store(gate + 3 * H + j, d_o, m);
        store(gate + 2 * H + j, here * i * (1.0f - g * g), m), store(d_cell + j, back, m);
      }
    }
    product(gates + t * N * 4 * H, N, 4 * H, right, d_h, H, false);
  }
}
}
