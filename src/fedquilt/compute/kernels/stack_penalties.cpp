// Penalties on the last layer: the trace norm of its weights, and two on its inputs, the features.

#include "stack.h"

#include <vector>

namespace stack {

namespace {

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
        const double tangent = (t < 0 ? -1.0 : 1.0) / (__builtin_fabs(t) + __builtin_sqrt(t * t + 1));
        const double c = 1 / __builtin_sqrt(tangent * tangent + 1), s = tangent * c;
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

}  // namespace

// With W = U S V', the shortest subgradient is U V' over the singular values that are not 0 up to rounding. It is found on
// the side that has fewer rows, as (W W')^-1/2 W or W (W' W)^-1/2, in double precision.
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
  const double rounding = __builtin_sqrt(most) * double(longer) * 1.1920928955078125e-07;  // as for numbers of float32
  for (int64_t i = 0; i < n; i++) {
    const double value = square[i * n + i] > 0 ? __builtin_sqrt(square[i * n + i]) : 0;
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

void add_feature_penalties(const float* features, int64_t m, int64_t count, const Penalty& penalty, float* d, int64_t width) {
  if (penalty.beta) {
    double square = 0;
    for (int64_t at = 0; at < m * count; at++) square += double(features[at]) * features[at];
    const float share = square > 0 ? float(penalty.beta / __builtin_sqrt(square)) : 0.0f;
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
    const double share = penalty.squared ? 2.0 * penalty.gamma / m : square > 0 ? penalty.gamma / __builtin_sqrt(square) / m : 0.0;
    for (int64_t i = 0; i < m; i++)
      for (int64_t p = 0; p < count; p++) d[i * width + p] += float(share * apart[p]);
  }
}

}  // namespace stack
