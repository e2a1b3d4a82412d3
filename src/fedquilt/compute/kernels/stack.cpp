// Local training of stacks of linear layers, in one thread: all steps of some clients, from their start to their end.
//
// Between a client's first and last step, weights lie in blocks of columns (outputs), row (input) after row, so that every
// product runs along registers. The gradient of weights is never written: it is summed in registers, and W takes the step,
// W -= lr dY'X, as soon as the sum is there. With momentum, weight decay, a pull to the start or a given direction, the sum
// begins with those.
//
// Penalties on the features, which are the last layer's inputs, and on that layer's weights are added to the gradients.
//
// A client's sums run over its own examples in their own order: who else is trained in the same call changes nothing.

#include "lanes.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace {

constexpr int64_t ROWS = V == 16 ? 12 : 6;   // examples whose sums, two registers each, stay in registers
constexpr int64_t INPUTS = V == 16 ? 8 : 6;  // inputs whose weights, two registers each, stay in registers
constexpr int64_t WIDE = 2 * V;
constexpr int64_t PARTS = LANES / V;
constexpr int64_t SIDES = V == 16 ? 4 : 2;  // inputs whose gradients, PARTS registers each for up to
constexpr int64_t EACH = V == 16 ? 5 : 3;   // so many examples, stay in registers

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

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Cuts m examples into groups of at most `most`, as even as they can be: registers are best used so.
template <typename Work>
void each_group(int64_t m, int64_t most, Work work) {
  const int64_t groups = (m + most - 1) / most;
  for (int64_t group = 0; group < groups; group++) {
    const int64_t first = m * group / groups;
    work(first, m * (group + 1) / groups - first);
  }
}

inline Lanes get(const float* from) { return *reinterpret_cast<const Unaligned*>(from); }
inline void put(float* to, Lanes lanes) { *reinterpret_cast<Unaligned*>(to) = lanes; }

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

// The sine and the cosine, to two units in the last place of 1.
inline void sine_and_cosine(Lanes x, Lanes& sine, Lanes& cosine) {
  const Lanes magic = all(12582912.0f), shifted = fused(0.636619772f, x, magic), n = shifted - magic;
  const Lanes once = fused(-1.5703125f, n, x), twice = fused(-4.837512969970703125e-4f, n, once);
  const Lanes r = fused(-7.549789948768648e-8f, n, twice), s = r * r;
  const Lanes third = fused(fused(all(-1.9515295891e-4f), s, 8.3321608736e-3f), s, -1.6666654611e-1f);
  const Lanes fourth = fused(fused(all(2.443315711809948e-5f), s, -1.388731625493765e-3f), s, 4.166664568298827e-2f);
  const Lanes odd = fused(r * s, third, r), even = fused(s * s, fourth, fused(-0.5f, s, all(1.0f)));
  const Bits quarter = (Bits)shifted;
  const Bits swapped = (quarter & 1) != 0, down = (quarter & 2) != 0, left = ((quarter + 1) & 2) != 0;
  const Lanes first = swapped ? even : odd, second = swapped ? odd : even;
  sine = down ? -first : first;
  cosine = left ? -second : second;
  const Bits near = (x < all(8192.0f)) & (x > all(-8192.0f));
  int64_t each[V / 2], together = -1;
  std::memcpy(each, &near, sizeof each);
  for (int64_t l = 0; l < V / 2; l++) together &= each[l];
  if (together == -1) return;
  for (int64_t l = 0; l < V; l++)  // also what is no number
    if (!near[l]) sine[l] = std::sin(x[l]), cosine[l] = std::cos(x[l]);
}

// Between a client's vector, rows of weights one output each, and blocks.
template <typename Move>
void each_weight(const Layer& layer, Move move) {
  for (int64_t j = 0; j < layer.outputs; j += WIDE) {
    const int64_t wide = least(layer.padded - j, WIDE), count = least(layer.outputs - j, WIDE);
    for (int64_t q = 0; q < layer.inputs; q += 16)
      for (int64_t l = 0; l < count; l++)
        for (int64_t p = q; p < least(layer.inputs, q + 16); p++)
          move(layer.weight + (j + l) * layer.inputs + p, layer.rows + j * layer.inputs + p * wide + l);
  }
  if (layer.bias >= 0)
    for (int64_t j = 0; j < layer.outputs; j++) move(layer.bias + j, layer.offsets + j);
}

// What fills up registers becomes 0: a client's NaN may have got there, and must not reach the next client.
void pack(const std::vector<Layer>& layers, const float* vector, std::vector<float>& blocks) {
  std::fill(blocks.begin(), blocks.end(), 0.0f);
  for (const Layer& layer : layers)
    each_weight(layer, [&](int64_t there, int64_t here) { blocks[here] = vector[there]; });
}

void unpack(const std::vector<Layer>& layers, const float* blocks, float* vector) {
  for (const Layer& layer : layers)
    each_weight(layer, [&](int64_t there, int64_t here) { vector[there] = blocks[here]; });
}

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

// Takes the step of a layer's weights, or of its bias, whose one input is 1.
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

// The gradient of a layer's inputs: dX = dY W', in rows of `width`.
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

// The eigenvectors of a symmetric matrix of n rows, as columns of `q`; `a` becomes diagonal. Jacobi's method, by rows.
void eigenvectors(std::vector<double>& a, std::vector<double>& q, int64_t n) {
  for (int64_t i = 0; i < n * n; i++) q[i] = i / n == i % n;
  for (int64_t sweep = 0; sweep < 30; sweep++) {
    double off = 0, on = 0;
    for (int64_t i = 0; i < n; i++)
      for (int64_t j = 0; j < n; j++) (i == j ? on : off) += a[i * n + j] * a[i * n + j];
    if (!(off > 1e-30 * on)) return;
    for (int64_t i = 0; i + 1 < n; i++)
      for (int64_t j = i + 1; j < n; j++) {
        const double here = a[i * n + j];
        if (here == 0) continue;
        const double t = (a[j * n + j] - a[i * n + i]) / (2 * here);
        const double tangent = (t < 0 ? -1.0 : 1.0) / (std::abs(t) + std::sqrt(t * t + 1));
        const double c = 1 / std::sqrt(tangent * tangent + 1), s = tangent * c;
        for (int64_t k = 0; k < n; k++) {
          const double x = a[k * n + i], y = a[k * n + j], u = q[k * n + i], v = q[k * n + j];
          a[k * n + i] = c * x - s * y, a[k * n + j] = s * x + c * y;
          q[k * n + i] = c * u - s * v, q[k * n + j] = s * u + c * v;
        }
        for (int64_t k = 0; k < n; k++) {
          const double x = a[i * n + k], y = a[j * n + k];
          a[i * n + k] = c * x - s * y, a[j * n + k] = s * x + c * y;
        }
      }
  }
}

// Adds alpha times the shortest subgradient of a layer's trace norm to `to`, which lies in blocks: with W = U S V', it is
// U V' over the singular values that are not 0 up to rounding. It is found on the side that has fewer rows, as (W W')^-1/2 W
// or W (W' W)^-1/2, in double precision.
void add_trace_norm(const Layer& layer, const float* blocks, float alpha, float* to) {
  const int64_t m = layer.outputs, k = layer.inputs, n = least(m, k);
  static thread_local std::vector<double> w, square, q, root;
  w.resize(m * k), square.assign(n * n, 0), q.resize(n * n), root.assign(n * n, 0);
  const auto at = [&](int64_t j, int64_t p) {
    const int64_t block = j / WIDE * WIDE, wide = least(layer.padded - block, WIDE);
    return layer.rows + block * k + p * wide + (j - block);
  };
  // Along the longer side, so that sums run over neighbours.
  for (int64_t j = 0; j < m; j++)
    for (int64_t p = 0; p < k; p++) w[m <= k ? j * k + p : p * m + j] = blocks[at(j, p)];
  const int64_t longer = m <= k ? k : m;
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = i; j < n; j++) {
      double sums[4] = {};
      const double *one = &w[i * longer], *other = &w[j * longer];
      int64_t p = 0;
      for (; p + 4 <= longer; p += 4)
        for (int64_t l = 0; l < 4; l++) sums[l] += one[p + l] * other[p + l];
      for (; p < longer; p++) sums[0] += one[p] * other[p];
      square[i * n + j] = square[j * n + i] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }
  eigenvectors(square, q, n);
  double most = 0;
  for (int64_t i = 0; i < n; i++) most = square[i * n + i] > most ? square[i * n + i] : most;
  const double rounding = std::sqrt(most) * double(longer) * 1.1920928955078125e-07;  // as for numbers of float32
  for (int64_t i = 0; i < n; i++) {
    const double value = square[i * n + i] > 0 ? std::sqrt(square[i * n + i]) : 0;
    if (!(value > rounding)) continue;
    for (int64_t r = 0; r < n; r++)
      for (int64_t s = 0; s < n; s++) root[r * n + s] += q[r * n + i] * q[s * n + i] / value;
  }
  static thread_local std::vector<double> row;
  for (int64_t r = 0; r < n; r++) {
    row.assign(longer, 0);
    for (int64_t s = 0; s < n; s++)
      for (int64_t p = 0; p < longer; p++) row[p] += root[r * n + s] * w[s * longer + p];
    for (int64_t p = 0; p < longer; p++) to[m <= k ? at(r, p) : at(p, r)] += alpha * float(row[p]);
  }
}

// Adds the gradients of the features' penalties to `d`, in rows of `width`. `features` are in rows of `count`.
void add_feature_penalties(const float* features, int64_t m, int64_t count, const Penalty& penalty, float* d, int64_t width) {
  if (penalty.beta) {
    double square = 0;
    for (int64_t at = 0; at < m * count; at++) square += double(features[at]) * features[at];
    const float share = square > 0 ? float(penalty.beta / std::sqrt(square)) : 0.0f;
    for (int64_t i = 0; i < m; i++)
      for (int64_t p = 0; p < count; p++) d[i * width + p] += share * features[i * count + p];
  }
  if (penalty.gamma) {
    static thread_local std::vector<double> apart;
    apart.assign(count, 0);
    for (int64_t i = 0; i < m; i++)
      for (int64_t p = 0; p < count; p++) apart[p] += features[i * count + p];
    double square = 0;
    for (int64_t p = 0; p < count; p++) apart[p] = apart[p] / m - penalty.drawn[p], square += apart[p] * apart[p];
    const double share = penalty.squared ? 2.0 * penalty.gamma / m : square > 0 ? penalty.gamma / std::sqrt(square) / m : 0.0;
    for (int64_t i = 0; i < m; i++)
      for (int64_t p = 0; p < count; p++) d[i * width + p] += float(share * apart[p]);
  }
}

// Turns scores into the gradient of the mean cross-entropy; returns that mean. `weights` are null if all are 1.
float cross_entropy(float* scores, const int64_t* rows, const int64_t* y, const float* weights, int64_t m, int64_t classes,
                    int64_t padded, bool normalise) {
  float total = 0, loss = 0;
  for (int64_t i = 0; i < m; i++) total += weights && normalise ? weights[rows[i]] : 1.0f;
  if (!(total > 0)) total = 1.0f;
  for (int64_t i = 0; i < m; i++) {
    float *row = scores + i * padded, most = row[0], all_of_them = 0;
    for (int64_t j = 1; j < classes; j++) most = row[j] > most ? row[j] : most;
    const float right = row[y[rows[i]]] - most, weight = weights ? weights[rows[i]] : 1.0f;
    for (int64_t j = 0; j < padded; j += LANES) {
      Lanes parts[PARTS] = {};
      for (int64_t part = 0, at = j; part < PARTS && at < padded; part++, at += V) {
        put(row + at, exponential(get(row + at) - most));
        for (int64_t l = classes - at; l < V; l++)
          if (l >= 0) row[at + l] = 0;
        parts[part] = get(row + at);
      }
      all_of_them += sum(parts);
    }
    loss += weight * (std::log(all_of_them) - right);
    const float share = weight / total;
    for (int64_t j = 0; j < padded; j += V) put(row + j, get(row + j) / all_of_them * share);
    row[y[rows[i]]] -= share;
  }
  return loss / total;
}

}  // namespace

extern "C" {

// `about` has five numbers per layer: inputs, outputs, where its weight and its bias begin in a vector (-1: no bias), and its
// activation. `vectors` (clients, size) are the clients' models, which are trained; `speeds`, for momentum, and `given`,
// what is added to their gradients, are as large, or null. `x` (rows, inputs) and `y` are examples, `weights` null or one for each. `order`
// are the rows of all batches of all clients, one after the other; `cuts` where each batch ends in a client's, `steps` how
// many each client has. `losses` are the mean losses of the clients' examples, without penalties. `alpha` goes with the
// trace norm of the last layer; `beta`, `gamma` and `squared` are those of Penalty. With `examples`, how many each client has
// (or null), beta is multiplied by the root of those over the batch's. `drawn`, for gamma, has a mean of features for each
// client. Returns 0, or 1 if memory is short.
int stack_train(const int64_t* about, const float* scales, int64_t depth, float* vectors, int64_t clients, int64_t size,
                float* speeds, const float* start, const float* given, const float* x, const int64_t* y, const float* weights,
                const int64_t* order, const int64_t* cuts, const int64_t* steps, double* losses, int64_t most, float lr,
                float momentum, float decay, float pull, int64_t normalise, float alpha, float beta, float gamma,
                int64_t squared, const float* examples, const float* drawn) {
  try {
    std::vector<Layer> layers;
    int64_t total = 0, widest = 0;
    for (int64_t n = 0; n < depth; n++, about += 5) {
      Layer layer = {about[0], about[1], about[2], about[3], Activation(about[4]), scales[n], 0, 0, 0};
      layer.padded = (layer.outputs + V - 1) / V * V;
      layer.rows = total, layer.offsets = total + layer.padded * layer.inputs;
      total = layer.offsets + layer.padded;
      widest = layer.padded > widest ? layer.padded : widest;
      layers.push_back(layer);
    }
    std::vector<float> blocks(total), velocities(momentum ? total : 0), starts(pull ? total : 0), givens(given ? total : 0);
    std::vector<float> besides(alpha ? total : 0);  // what the last layer's weights are given
    std::vector<float> batch(most * layers[0].inputs), ones(most, 1.0f), d(most * widest), d_x(most * widest);
    // What every layer returns; inner ones without padding, for they are the inputs of the next.
    std::vector<std::vector<float>> outs, slopes(depth);
    for (const Layer& layer : layers) outs.emplace_back(most * layer.padded);
    for (int64_t n = 0; n < depth; n++)
      if (layers[n].activation == COSINE) slopes[n].resize(most * layers[n].padded);
    std::vector<std::vector<float>> inner(depth);
    for (int64_t n = 0; n + 1 < depth; n++) inner[n].resize(most * layers[n].outputs);
    if (pull) pack(layers, start, starts);
    Rule rule = {lr, momentum, decay, pull, pull ? starts.data() : nullptr, given ? givens.data() : nullptr};
    const int64_t inputs = layers[0].inputs;
    for (int64_t client = 0; client < clients; client++) {
      pack(layers, vectors + client * size, blocks);
      if (given) pack(layers, given + client * size, givens);
      if (momentum) pack(layers, speeds + client * size, velocities);
      double seen = 0, lost = 0;
      int64_t first = 0;
      for (int64_t number = 0; number < steps[client]; number++) {
        const int64_t m = cuts[number] - first, *rows = order + first;
        for (int64_t i = 0; i < m; i++) std::memcpy(&batch[i * inputs], x + rows[i] * inputs, 4 * inputs);
        const float* in = batch.data();
        for (int64_t n = 0; n < depth; n++) {
          const Layer& layer = layers[n];
          float* out = outs[n].data();
          forward(layer, in, m, blocks.data(), out);
          for (int64_t at = 0; at < m * layer.padded && layer.activation != NONE; at += V) {
            const Lanes z = get(out + at);
            if (layer.activation == RELU) {
              put(out + at, z < all(0.0f) ? all(0.0f) : z);
            } else {
              Lanes sine, cosine;
              sine_and_cosine(z, sine, cosine);
              put(out + at, layer.scale * cosine), put(&slopes[n][at], -layer.scale * sine);
            }
          }
          if (n + 1 < depth)
            for (int64_t i = 0; i < m; i++)
              std::memcpy(&inner[n][i * layer.outputs], out + i * layer.padded, 4 * layer.outputs);
          in = inner[n].data();
        }
        const Layer& last = layers[depth - 1];
        float* scores = outs[depth - 1].data();
        const float loss = cross_entropy(scores, rows, y, weights, m, last.outputs, last.padded, normalise);
        seen += m, lost += double(loss) * m;
        float* of_outputs = scores;
        for (int64_t n = depth - 1; n >= 0; n--) {
          const Layer& layer = layers[n];
          const float* from = n ? inner[n - 1].data() : batch.data();
          if (n) {
            const Layer& below = layers[n - 1];
            for (int64_t i = 0; i < m; i++)
              for (int64_t l = below.outputs; l < below.padded; l++) d_x[i * below.padded + l] = 0;
            backward(layer, of_outputs, m, blocks.data(), d_x.data(), below.padded);
            if (n == depth - 1 && (beta || gamma)) {
              const float share = examples ? std::sqrt(examples[client] / float(m)) : 1.0f;
              const Penalty penalty = {beta * share, gamma, squared != 0, drawn ? drawn + client * layer.inputs : nullptr};
              add_feature_penalties(from, m, layer.inputs, penalty, d_x.data(), below.padded);
            }
            const float *out = outs[n - 1].data(), *slope = slopes[n - 1].data();
            for (int64_t at = 0; at < m * below.padded && below.activation != NONE; at += V) {
              const Lanes each = get(&d_x[at]);
              const Lanes zero = all(0.0f);
              put(&d_x[at], below.activation == COSINE ? each * get(slope + at) : (get(out + at) > zero ? each : zero));
            }
          }
          float* moving = momentum ? velocities.data() : nullptr;
          Rule of_weights = rule;
          if (n == depth - 1 && alpha) {
            for (int64_t at = layer.rows; at < layer.offsets; at++) besides[at] = given ? givens[at] : 0.0f;
            add_trace_norm(layer, blocks.data(), alpha, besides.data());
            of_weights.given = besides.data();
          }
          step(layer.inputs, layer.padded, from, of_outputs, m, layer.rows, blocks.data(), moving, of_weights);
          if (layer.bias >= 0) step(1, layer.padded, ones.data(), of_outputs, m, layer.offsets, blocks.data(), moving, rule);
          d.swap(d_x);
          of_outputs = d.data();
        }
        first = cuts[number];
      }
      unpack(layers, blocks.data(), vectors + client * size);
      if (momentum) unpack(layers, velocities.data(), speeds + client * size);
      losses[client] = seen ? lost / seen : 0.0;
      order += first, cuts += steps[client];
    }
  } catch (const std::bad_alloc&) {
    return 1;
  }
  return 0;
}
}
