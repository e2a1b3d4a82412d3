// Group normalisation of images with channels last, (N, H, W, C), and the clamp that may follow it, with their gradient.
//
// An image is read twice forward, for its moments and to be written, and twice backward: its second reading comes from a
// cache. Sums run over TILE places in registers, and from there on in doubles; moments are those of values less the first
// one of their channel, so that a large mean costs no digits.

#include "lanes.h"

#include <vector>

namespace {

#define INLINE __attribute__((always_inline))

constexpr int64_t TILE = 64;
constexpr int64_t WIDE = 4;  // registers of channels that are summed at a time

// Adds two sums of every channel, over all places, to `one` and `two`. values(place, channel, count, first, second) gives
// what is added up.
template <typename Values>
void sums(int64_t places, int64_t channels, double* one, double* two, Values values) {
  for (int64_t tile = 0; tile < places; tile += TILE) {
    const int64_t end = least(places, tile + TILE);
    for (int64_t c = 0; c < channels; c += WIDE * V) {
      Lanes first[WIDE] = {}, second[WIDE] = {};
      const int64_t wide = least((channels - c + V - 1) / V, WIDE);
      if (wide == WIDE && channels - c >= WIDE * V) {
        for (int64_t place = tile; place < end; place++)
#pragma GCC unroll 4
          for (int64_t w = 0; w < WIDE; w++) values(place, c + w * V, V, first[w], second[w]);
      } else {
        for (int64_t place = tile; place < end; place++)
          for (int64_t w = 0; w < wide; w++) values(place, c + w * V, least(channels - c - w * V, V), first[w], second[w]);
      }
      for (int64_t w = 0; w < wide; w++)
        for (int64_t l = 0; l < least(channels - c - w * V, V); l++)
          one[c + w * V + l] += first[w][l], two[c + w * V + l] += second[w][l];
    }
  }
}

// Calls see(channel, count) for every register of channels; `count`, of the whole ones, is known to the compiler.
template <typename See>
inline void each_register(int64_t channels, See see) {
  int64_t c = 0;
  for (; c + V <= channels; c += V) see(c, V);
  if (c < channels) see(c, channels - c);
}

// Not a number stays none.
inline Lanes clamped(Lanes z, Lanes low, Lanes high) { return z < low ? low : (z > high ? high : z); }

// y = scale x + shift for every channel of an image.
void affine(int64_t channels, int64_t groups, const float* weight, const float* bias, const float* mean, const float* rstd,
            float* scale, float* shift) {
  for (int64_t c = 0; c < channels; c++) {
    const int64_t g = c / (channels / groups);
    scale[c] = rstd[g] * weight[c], shift[c] = bias[c] - mean[g] * scale[c];
  }
}

}  // namespace

extern "C" {

// `mean` and `rstd` (images, groups) are written, for the gradient.
void group_norm_forward(const float* x, const float* weight, const float* bias, float* y, float* mean, float* rstd,
                        int64_t images, int64_t places, int64_t channels, int64_t groups, float eps, float low, float high) {
  const int64_t each = channels / groups;
  std::vector<double> one(channels), two(channels);
  std::vector<float> scale(channels), shift(channels);
  const Lanes lowest = all(low), highest = all(high);
  for (int64_t n = 0; n < images; n++, mean += groups, rstd += groups) {
    one.assign(channels, 0.0), two.assign(channels, 0.0);
    sums(places, channels, one.data(), two.data(), [&](int64_t place, int64_t c, int64_t count, Lanes& first, Lanes& second) INLINE {
      const Lanes value = load(x + place * channels + c, count) - load(x + c, count);
      first += value, second = fused(value, value, second);
    });
    for (int64_t g = 0; g < groups; g++) {
      double middle = 0, spread = 0;
      for (int64_t c = g * each; c < (g + 1) * each; c++) middle += one[c] / places + x[c];
      middle /= each;
      for (int64_t c = g * each; c < (g + 1) * each; c++) {
        const double own = one[c] / places, apart = own + x[c] - middle;
        spread += two[c] / places - own * own + apart * apart;
      }
      spread = spread < 0 ? 0 : spread / each;
      mean[g] = float(middle), rstd[g] = float(1 / __builtin_sqrt(spread + eps));
    }
    affine(channels, groups, weight, bias, mean, rstd, scale.data(), shift.data());
    for (int64_t place = 0; place < places; place++, x += channels, y += channels)
      each_register(channels, [&](int64_t c, int64_t count) INLINE {
        const Lanes z = fused(load(x + c, count), load(&scale[c], count), load(&shift[c], count));
        store(y + c, clamped(z, lowest, highest), count);
      });
  }
}

// Adds to `d_weight` and `d_bias`, which are doubles, and writes `d_x`.
void group_norm_backward(const float* d_y, const float* x, const float* weight, const float* bias, const float* mean,
                         const float* rstd, float* d_x, double* d_weight, double* d_bias, int64_t images, int64_t places,
                         int64_t channels, int64_t groups, float low, float high) {
  const int64_t each = channels / groups;
  std::vector<double> one(channels), two(channels);
  std::vector<float> scale(channels), shift(channels), middle(channels), slope(channels), offset(channels);
  const Lanes lowest = all(low), highest = all(high);
  for (int64_t n = 0; n < images; n++, mean += groups, rstd += groups) {
    affine(channels, groups, weight, bias, mean, rstd, scale.data(), shift.data());
    for (int64_t c = 0; c < channels; c++) middle[c] = mean[c / each];
    // The gradient of what the clamp was given.
    const auto passed = [&](Lanes value, Lanes d, int64_t c, int64_t count) INLINE {
      const Lanes z = fused(value, load(&scale[c], count), load(&shift[c], count));
      return (z <= lowest) | (z >= highest) ? Lanes{} : d;
    };
    one.assign(channels, 0.0), two.assign(channels, 0.0);
    sums(places, channels, one.data(), two.data(), [&](int64_t place, int64_t c, int64_t count, Lanes& first, Lanes& second) INLINE {
      const int64_t at = place * channels + c;
      const Lanes value = load(x + at, count), d = passed(value, load(d_y + at, count), c, count);
      first += d, second = fused(d, value - load(&middle[c], count), second);
    });
    for (int64_t g = 0; g < groups; g++) {
      double of_mean = 0, of_spread = 0;
      for (int64_t c = g * each; c < (g + 1) * each; c++) {
        d_bias[c] += one[c], d_weight[c] += two[c] * rstd[g];
        of_mean += one[c] * weight[c], of_spread += two[c] * weight[c] * rstd[g];
      }
      const double count = double(places) * each;
      for (int64_t c = g * each; c < (g + 1) * each; c++) {
        slope[c] = float(-of_spread / count * rstd[g] * rstd[g]);
        offset[c] = float(-of_mean / count * rstd[g]);
      }
    }
    for (int64_t place = 0; place < places; place++, x += channels, d_y += channels, d_x += channels)
      each_register(channels, [&](int64_t c, int64_t count) INLINE {
        const Lanes value = load(x + c, count), d = passed(value, load(d_y + c, count), c, count);
        const Lanes apart = fused(value - load(&middle[c], count), load(&slope[c], count), load(&offset[c], count));
        store(d_x + c, fused(d, load(&scale[c], count), apart), count);
      });
  }
}
}
