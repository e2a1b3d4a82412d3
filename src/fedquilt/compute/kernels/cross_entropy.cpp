// The cross-entropy of scores of many classes, −log softmax(scores)[class], and its gradient, in one thread.
//
// Log-probabilities are not written: a row keeps its highest score and the logarithm of Σ exp(score − highest), and the gradient
// is computed from the scores again. A row's second reading comes from a cache. A score of minus infinity has a gradient of
// e^(−87), not 0.

#include "lanes.h"

namespace {

constexpr int64_t PARTS = LANES / V;

// Calls see(first, count, register) for all classes, LANES of them side by side; `count`, of whole registers, is known to the
// compiler.
template <typename See>
inline __attribute__((always_inline)) void each_register(int64_t classes, See see) {
  int64_t j = 0;
  for (; j + LANES <= classes; j += LANES)
#pragma GCC unroll 4
    for (int64_t part = 0; part < PARTS; part++) see(j + part * V, V, part);
  for (int64_t part = 0; j + part * V < classes; part++) see(j + part * V, least(classes - j - part * V, V), part);
}

// The highest score of a row and log Σ exp(score − highest), which are kept apart: their sum would lose digits if scores are
// large. Sums run over LANES numbers side by side, and are added up in doubles.
struct Row {
  float highest, logarithm;
};

Row summary(const float* row, int64_t classes) {
  Lanes highest[PARTS];
  for (int64_t part = 0; part < PARTS; part++) highest[part] = all(row[0]);
  each_register(classes, [&](int64_t j, int64_t count, int64_t part) __attribute__((always_inline)) {
    Lanes value = highest[part];
    if (count == V) value = get(row + j);
    else std::memcpy(&value, row + j, 4 * count);
    highest[part] = value > highest[part] ? value : highest[part];
  });
  float top = row[0];
  for (int64_t part = 0; part < PARTS; part++)
    for (int64_t l = 0; l < V; l++) top = highest[part][l] > top ? highest[part][l] : top;
  Lanes sums[PARTS] = {};
  each_register(classes, [&](int64_t j, int64_t count, int64_t part) __attribute__((always_inline)) {
    Lanes value = exponential(load(row + j, count) - top);
    for (int64_t l = count; l < V; l++) value[l] = 0;
    sums[part] += value;
  });
  double sum = 0;
  for (int64_t part = 0; part < PARTS; part++)
    for (int64_t l = 0; l < V; l++) sum += sums[part][l];
  return {top, float(__builtin_log(sum))};
}

}  // namespace

extern "C" {

// `losses` (rows) and `kept` (rows, 2) are written; rows whose target is `ignored` have the loss 0. Returns how many others there
// are, or −1 if a target is no class.
int64_t cross_entropy_forward(const float* scores, const int64_t* targets, float* losses, float* kept, int64_t rows,
                              int64_t classes, int64_t ignored) {
  int64_t counted = 0;
  for (int64_t i = 0; i < rows; i++, scores += classes) {
    losses[i] = 0;
    if (targets[i] == ignored) continue;
    if (targets[i] < 0 || targets[i] >= classes) return -1;
    const Row row = summary(scores, classes);
    kept[2 * i] = row.highest, kept[2 * i + 1] = row.logarithm;
    losses[i] = (row.highest - scores[targets[i]]) + row.logarithm;
    counted++;
  }
  return counted;
}

// d_scores = factor (softmax(scores) − 1 at the target)
void cross_entropy_backward(const float* scores, const int64_t* targets, const float* kept, float factor, float* d_scores,
                            int64_t rows, int64_t classes, int64_t ignored) {
  for (int64_t i = 0; i < rows; i++, scores += classes, d_scores += classes) {
    if (targets[i] == ignored) {
      std::memset(d_scores, 0, 4 * classes);
      continue;
    }
    const float highest = kept[2 * i], logarithm = kept[2 * i + 1];
    each_register(classes, [&](int64_t j, int64_t count, int64_t) __attribute__((always_inline)) {
      store(d_scores + j, factor * exponential((load(scores + j, count) - highest) - logarithm), count);
    });
    d_scores[targets[i]] -= factor;
  }
}
}
