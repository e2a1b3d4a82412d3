// Local response normalisation over channels, which come last: y = x · d^(−3/4), where d = 1 + Σ scale · x² over the channels
// within `radius` of each one; and its gradient. With g = dy · x · d^(−7/4), it is dx = dy · d^(−3/4) − 3/2 · scale · x · Σ g.

#include "lanes.h"

namespace {

inline Lanes root(Lanes x) {
#if defined(__AVX512F__) && !defined(__clang__)
  return __builtin_ia32_sqrtps512_mask(x, x, -1, 4);
#elif defined(__AVX__) && !defined(__clang__)
  return __builtin_ia32_sqrtps256(x);
#else
  for (int64_t l = 0; l < V; l++) x[l] = __builtin_sqrtf(x[l]);
  return x;
#endif
}

// Sums over the `width` numbers from each one on.
inline Lanes sums(const float* from, int64_t width) {
  Lanes sum = get(from);
  for (int64_t j = 1; j < width; j++) sum += get(from + j);
  return sum;
}

inline Lanes square(const float* x, float scale) { return get(x) * get(x) * scale; }

// d of the squares, and NaN where it is too large: x over infinity would hide it.
inline Lanes divisor(const float* squares, int64_t width) {
  const Lanes d = sums(squares, width) + 1.0f;
  return d + (d - d);
}

}  // namespace

extern "C" {

// `room` has channels + 2 · radius places, `channels` is a multiple of LANES.
void response_norm_forward(const float* x, float* y, float* room, int64_t places, int64_t channels, int64_t radius, float scale) {
  const int64_t width = 2 * radius + 1;
  std::memset(room, 0, 4 * (channels + 2 * radius));
  for (int64_t i = 0; i < places; i++, x += channels, y += channels) {
    for (int64_t c = 0; c < channels; c += V) put(room + radius + c, square(x + c, scale));
    for (int64_t c = 0; c < channels; c += V) {
      const Lanes half = root(divisor(room + c, width));
      put(y + c, get(x + c) / (half * root(half)));
    }
  }
}

// `room` has four times as many places.
void response_norm_backward(const float* d_y, const float* x, float* d_x, float* room, int64_t places, int64_t channels,
                            int64_t radius, float scale) {
  const int64_t width = 2 * radius + 1, wide = channels + 2 * radius;
  float *squares = room, *shares = room + wide, *direct = room + 2 * wide;
  const Lanes factor = all(-1.5f * scale);
  std::memset(room, 0, 4 * 2 * wide);
  for (int64_t i = 0; i < places; i++, d_y += channels, x += channels, d_x += channels) {
    for (int64_t c = 0; c < channels; c += V) put(squares + radius + c, square(x + c, scale));
    for (int64_t c = 0; c < channels; c += V) {
      const Lanes d = divisor(squares + c, width), half = root(d);
      const Lanes scaled = get(d_y + c) / (half * root(half));
      put(direct + c, scaled);
      put(shares + radius + c, scaled * get(x + c) / d);
    }
    for (int64_t c = 0; c < channels; c += V)
      put(d_x + c, fused(factor * get(x + c), sums(shares + c, width), get(direct + c)));
  }
}
}
