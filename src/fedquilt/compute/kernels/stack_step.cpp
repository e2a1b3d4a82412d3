// The gradient of a layer's weights, which is summed in registers and never written, and the step along it.

#include "stack.h"

namespace stack {

namespace {

constexpr int64_t INPUTS = V == 16 ? 8 : 6;  // inputs whose weights, two registers each, stay in registers

// The direction of P inputs' weights, C registers each, and the step along it. `d` is of the outputs.
template <int64_t P, int64_t C>
void directions(const float* x, int64_t inputs, const float* d, int64_t width, int64_t m, float* w, float* velocity,
                const float* start, const float* given, const Rule& rule, bool plain) {
  Lanes sums[P][C];
#pragma GCC unroll 12
  for (int64_t p = 0; p < P; p++)
#pragma GCC unroll 12
    for (int64_t c = 0; c < C; c++) {
      sums[p][c] = Lanes{};
      if (plain) continue;
      const int64_t at = (p * C + c) * V;
      const Lanes now = get(w + at);
      if (given) sums[p][c] = get(given + at);
      if (rule.decay) sums[p][c] = fused(rule.decay, now, sums[p][c]);
      if (rule.pull) sums[p][c] = fused(rule.pull, now - get(start + at), sums[p][c]);
      if (velocity) sums[p][c] = fused(rule.momentum, get(velocity + at), sums[p][c]);
    }
  for (int64_t i = 0; i < m; i++) {
    Lanes b[C];
#pragma GCC unroll 12
    for (int64_t c = 0; c < C; c++) b[c] = get(d + i * width + c * V);
#pragma GCC unroll 12
    for (int64_t p = 0; p < P; p++) {
      const float each = x[i * inputs + p];
#pragma GCC unroll 12
      for (int64_t c = 0; c < C; c++) sums[p][c] = fused(each, b[c], sums[p][c]);
    }
  }
#pragma GCC unroll 12
  for (int64_t p = 0; p < P; p++)
#pragma GCC unroll 12
    for (int64_t c = 0; c < C; c++) {
      const int64_t at = (p * C + c) * V;
      if (velocity) put(velocity + at, sums[p][c]);
      put(w + at, fused(-rule.lr, sums[p][c], get(w + at)));
    }
}

}  // namespace

void step(int64_t inputs, int64_t padded, const float* x, const float* d, int64_t m, int64_t first, float* blocks,
          float* velocities, const Rule& rule) {
  const bool plain = rule.plain();
  for (int64_t j = 0; j < padded; j += WIDE) {
    const bool whole = padded - j >= WIDE;
    for (int64_t p = 0, count; p < inputs; p += count) {
      const int64_t left = inputs - p, at = first + j * inputs + p * (whole ? WIDE : V);
      count = left >= INPUTS ? INPUTS : left >= 2 ? 2 : 1;
      float* velocity = velocities ? velocities + at : nullptr;
      const float *start = rule.start ? rule.start + at : nullptr, *given = rule.given ? rule.given + at : nullptr;
      const auto take = [&](auto directions) {
        directions(x + p, inputs, d + j, padded, m, blocks + at, velocity, start, given, rule, plain);
      };
      if (count == INPUTS) take(whole ? directions<INPUTS, 2> : directions<INPUTS, 1>);
      else if (count == 2) take(whole ? directions<2, 2> : directions<2, 1>);
      else take(whole ? directions<1, 2> : directions<1, 1>);
    }
  }
}

}  // namespace stack
