// What the files of the kernel for stacks of linear layers share. They are compiled side by side, which takes less time.

#pragma once

#include "lanes.h"

namespace stack __attribute__((visibility("hidden"))) {

constexpr int64_t WIDE = 2 * V;
constexpr int64_t PARTS = LANES / V;

enum Activation : int64_t { NONE, RELU, COSINE };

struct Layer {
  int64_t inputs, outputs, weight, bias;  // where weight and bias begin in a client's vector; -1: it has no bias
  Activation activation;
  float scale;
  int64_t padded, rows, offsets;  // outputs in whole registers; where both begin in the blocks
};

// How a direction becomes a step; `start` and `given` lie in blocks, or are null.
struct Rule {
  float lr, momentum, decay, pull;
  const float *start, *given;
  bool plain() const { return !momentum && !decay && !pull && !given; }
};

// What is added to the mean loss for the last layer's inputs F: beta ||F||_F, and gamma times the distance, or its square, of
// their mean from `drawn`.
struct Penalty {
  float beta, gamma;
  bool squared;
  const float* drawn;
};

// Cuts m examples into groups of at most `most`, as even as they can be: registers are best used so.
template <typename Work>
void each_group(int64_t m, int64_t most, Work work) {
  const int64_t groups = (m + most - 1) / most;
  for (int64_t group = 0; group < groups; group++) {
    const int64_t first = m * group / groups;
    work(first, m * (group + 1) / groups - first);
  }
}

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define SHUFFLES
#endif
#endif

// The sum of LANES numbers in their registers, by halves.
inline float sum(Lanes* parts) {
  for (int64_t half = PARTS / 2; half; half /= 2)
    for (int64_t part = 0; part < half; part++) parts[part] += parts[part + half];
  Lanes lanes = parts[0];
#if defined(SHUFFLES) && defined(__AVX512F__)
  lanes += __builtin_shufflevector(lanes, lanes, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
  lanes += __builtin_shufflevector(lanes, lanes, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
  lanes += __builtin_shufflevector(lanes, lanes, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
  lanes += __builtin_shufflevector(lanes, lanes, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
  return lanes[0];
#elif defined(SHUFFLES) && defined(__AVX__)
  lanes += __builtin_shufflevector(lanes, lanes, 4, 5, 6, 7, 0, 1, 2, 3);
  lanes += __builtin_shufflevector(lanes, lanes, 2, 3, 0, 1, 6, 7, 4, 5);
  lanes += __builtin_shufflevector(lanes, lanes, 1, 0, 3, 2, 5, 4, 7, 6);
  return lanes[0];
#else
  float each[V];
  std::memcpy(each, &lanes, sizeof each);
  for (int64_t half = V / 2; half; half /= 2)
    for (int64_t l = 0; l < half; l++) each[l] += each[l + half];
  return each[0];
#endif
}

// X W + b, in rows of as many numbers as whole registers have.
void forward(const Layer& layer, const float* x, int64_t m, const float* blocks, float* out);

// Takes the step of a layer's weights, or of its bias, whose one input is 1.
void step(int64_t inputs, int64_t padded, const float* x, const float* d, int64_t m, int64_t first, float* blocks,
          float* velocities, const Rule& rule);

// The gradient of a layer's inputs: dX = dY W', in rows of `width`.
void backward(const Layer& layer, const float* d, int64_t m, const float* blocks, float* d_x, int64_t width);

// Adds alpha times the shortest subgradient of a layer's trace norm to `to`, which lies in blocks.
void add_trace_norm(const Layer& layer, const float* blocks, float alpha, float* to);

// Adds the gradients of the features' penalties to `d`, in rows of `width`. `features` are in rows of `count`.
void add_feature_penalties(const float* features, int64_t m, int64_t count, const Penalty& penalty, float* d, int64_t width);

}  // namespace stack
