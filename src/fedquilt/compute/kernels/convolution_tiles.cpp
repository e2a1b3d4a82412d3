// Convolutions by Winograd's minimal filtering, in tiles (Lavin and Gray 2016, "Fast Algorithms for Convolutional Neural
// Networks").
//
// A tile of OUT × OUT outputs of a filter g of SIDE × SIDE needs SIZE × SIZE inputs d, SIZE = OUT + SIDE − 1. With a
// polynomial for each row and column, evaluated at SIZE points,
//
//     y = Aᵀ [(G g Gᵀ) ⊙ (B d Bᵀ)] A,
//
// and the sum over channels is a product of matrices for each of the SIZE² pairs of points. For filters of 5 that is 64
// multiplications for 16 outputs instead of 400, for filters of 3 it is 36 instead of 144. The gradients are those of this
// formula: with M = A dy Aᵀ for the gradient of a tile's outputs, dg = Gᵀ [Σ M ⊙ (B d Bᵀ)] G over all tiles, and
// dd = Bᵀ [M ⊙ (G g Gᵀ)] B, which is added up where tiles overlap.
//
// The points are 0, ±1, ±2, for filters of 5 also ±1/2, and infinity. Those of each ± pair give rows of A, B and G that differ
// in the signs of every second number.

#include "convolution.h"

namespace convolution {

namespace {

template <int64_t SIDE>
struct Points;

template <>
struct Points<3> {
  static constexpr int64_t SIZE = 6, OUT = 4;
  static constexpr float B[SIZE][SIZE] = {{4, 0, -5, 0, 1, 0}, {0, -4, -4, 1, 1, 0}, {}, {0, -2, -1, 2, 1, 0}, {}, {0, 4, 0, -5, 0, 1}};
  static constexpr float G[SIZE][3] = {{1 / 4.f, 0, 0}, {-1 / 6.f, -1 / 6.f, -1 / 6.f}, {}, {1 / 24.f, 1 / 12.f, 1 / 6.f}, {}, {0, 0, 1}};
  static constexpr float A[SIZE][OUT] = {{1, 0, 0, 0}, {1, 1, 1, 1}, {}, {1, 2, 4, 8}, {}, {0, 0, 0, 1}};
};

template <>
struct Points<5> {
  static constexpr int64_t SIZE = 8, OUT = 4;
  static constexpr float B[SIZE][SIZE] = {{-1, 0, 5.25, 0, -5.25, 0, 1, 0},
                                          {0, 1, 1, -4.25, -4.25, 1, 1, 0},
                                          {},
                                          {0, 0.5, 0.25, -2.5, -1.25, 2, 1, 0},
                                          {},
                                          {0, 2, 4, -2.5, -5, 0.5, 1, 0},
                                          {},
                                          {0, -1, 0, 5.25, 0, -5.25, 0, 1}};
  static constexpr float G[SIZE][5] = {{-1, 0, 0, 0, 0},
                                       {-2 / 9.f, -2 / 9.f, -2 / 9.f, -2 / 9.f, -2 / 9.f},
                                       {},
                                       {1 / 90.f, 1 / 45.f, 2 / 45.f, 4 / 45.f, 8 / 45.f},
                                       {},
                                       {32 / 45.f, 16 / 45.f, 8 / 45.f, 4 / 45.f, 2 / 45.f},
                                       {},
                                       {0, 0, 0, 0, 1}};
  static constexpr float A[SIZE][OUT] = {{1, 0, 0, 0}, {1, 1, 1, 1}, {}, {1, 2, 4, 8}, {}, {1, 0.5, 0.25, 0.125}, {}, {0, 0, 0, 1}};
};

// Adds `by` times x to a sum that may have nothing in it yet. With constants, nothing of this remains but the one operation.
inline __attribute__((always_inline)) void add(Lanes& sum, bool& begun, float by, Lanes x) {
  if (by == 0) return;
  if (!begun) sum = by == 1 ? x : by == -1 ? -x : by * x;
  else if (by == 1) sum += x;
  else if (by == -1) sum -= x;
  else sum = fused(by, x, sum);
  begun = true;
}

// out = P in, for COUNT numbers in.
template <int64_t SIZE, int64_t COUNT>
inline __attribute__((always_inline)) void evaluate(const float (&p)[SIZE][COUNT], const Lanes* in, int64_t in_step, Lanes* out,
                                                    int64_t out_step) {
#pragma GCC unroll 8
  for (int64_t i = 0; i < SIZE; i += SIZE - 1) {
    bool begun = false;
    Lanes sum = {};
#pragma GCC unroll 8
    for (int64_t j = 0; j < COUNT; j++) add(sum, begun, p[i][j], in[j * in_step]);
    out[i * out_step] = sum;
  }
#pragma GCC unroll 8
  for (int64_t i = 1; i < SIZE - 1; i += 2) {
    bool begun[2] = {false, false};
    Lanes sums[2] = {};
#pragma GCC unroll 8
    for (int64_t j = 0; j < COUNT; j++) add(sums[j % 2], begun[j % 2], p[i][j], in[j * in_step]);
    out[i * out_step] = sums[0] + sums[1];
    out[(i + 1) * out_step] = sums[0] - sums[1];
  }
}

// out = Pᵀ in, for COUNT numbers out.
template <int64_t SIZE, int64_t COUNT>
inline __attribute__((always_inline)) void collect(const float (&p)[SIZE][COUNT], const Lanes* in, int64_t in_step, Lanes* out,
                                                   int64_t out_step) {
  Lanes pairs[2][SIZE / 2];  // sums and differences of what belongs to a pair of points
#pragma GCC unroll 8
  for (int64_t i = 1; i < SIZE - 1; i += 2) {
    pairs[0][i / 2] = in[i * in_step] + in[(i + 1) * in_step];
    pairs[1][i / 2] = in[i * in_step] - in[(i + 1) * in_step];
  }
#pragma GCC unroll 8
  for (int64_t j = 0; j < COUNT; j++) {
    bool begun = false;
    Lanes sum = {};
    add(sum, begun, p[0][j], in[0]);
#pragma GCC unroll 8
    for (int64_t i = 1; i < SIZE - 1; i += 2) add(sum, begun, p[i][j], pairs[j % 2][i / 2]);
    add(sum, begun, p[SIZE - 1][j], in[(SIZE - 1) * in_step]);
    out[j * out_step] = sum;
  }
}

// out = P in Pᵀ
template <int64_t SIZE, int64_t COUNT>
inline __attribute__((always_inline)) void evaluate_both(const float (&p)[SIZE][COUNT], const Lanes (&in)[COUNT][COUNT],
                                                         Lanes (&out)[SIZE][SIZE]) {
  Lanes half[COUNT][SIZE];
#pragma GCC unroll 1
  for (int64_t i = 0; i < COUNT; i++) evaluate(p, in[i], 1, half[i], 1);
#pragma GCC unroll 1
  for (int64_t j = 0; j < SIZE; j++) evaluate(p, &half[0][j], SIZE, &out[0][j], SIZE);
}

// out = Pᵀ in P
template <int64_t SIZE, int64_t COUNT>
inline __attribute__((always_inline)) void collect_both(const float (&p)[SIZE][COUNT], const Lanes (&in)[SIZE][SIZE],
                                                        Lanes (&out)[COUNT][COUNT]) {
  Lanes half[SIZE][COUNT];
#pragma GCC unroll 1
  for (int64_t i = 0; i < SIZE; i++) collect(p, in[i], 1, half[i], 1);
#pragma GCC unroll 1
  for (int64_t j = 0; j < COUNT; j++) collect(p, &half[0][j], COUNT, &out[0][j], COUNT);
}

constexpr int64_t APART = 16;  // floats between planes, so that they do not compete for the same lines of the cache

template <int64_t SIDE>
class Tiles {
  using P = Points<SIDE>;
  static constexpr int64_t SIZE = P::SIZE, OUT = P::OUT, ALL = SIZE * SIZE;
  static constexpr int64_t TOGETHER = 24;  // tiles whose products are taken at once

  const Shape& s;
  const int64_t down = (s.rows() + OUT - 1) / OUT, across = (s.columns() + OUT - 1) / OUT, tiles = s.images * down * across;
  const int64_t in_plane = TOGETHER * s.channels + APART, out_plane = TOGETHER * s.filters + APART;
  const int64_t weight_plane = s.channels * s.filters + APART;
  float *const in, *const out, *const weights, *const others, *const outside;

  // Finds the places of a tile, which begins `shift` places further up and to the left, in images of (height, width, channels);
  // those that are outside of the image are `nowhere`.
  template <typename Place, int64_t COUNT>
  void window(int64_t tile, int64_t shift, Place* image, int64_t height, int64_t width, int64_t channels, Place* nowhere,
              Place* (&places)[COUNT][COUNT]) const {
    const int64_t n = tile / (down * across), y = tile / across % down * OUT - shift, x = tile % across * OUT - shift;
    for (int64_t i = 0; i < COUNT; i++)
      for (int64_t j = 0; j < COUNT; j++) {
        const bool inside = y + i >= 0 && y + i < height && x + j >= 0 && x + j < width;
        places[i][j] = inside ? image + ((n * height + y + i) * width + x + j) * channels : nowhere;
      }
  }

  // Zeros to read outside of an image; what is written there, nobody reads.
  float* zeros(int64_t count) const {
    std::memset(outside, 0, 4 * count);
    return outside;
  }

  template <int64_t COUNT>
  void evaluate_window(const float (&p)[SIZE][COUNT], const float* const (&places)[COUNT][COUNT], int64_t channels, float* to,
                       int64_t plane) const {
    for (int64_t c = 0; c < channels; c += V) {
      Lanes given[COUNT][COUNT], points[SIZE][SIZE];
      for (int64_t i = 0; i < COUNT; i++)
        for (int64_t j = 0; j < COUNT; j++) given[i][j] = get(places[i][j] + c);
      evaluate_both(p, given, points);
      for (int64_t i = 0; i < ALL; i++) put(to + i * plane + c, points[i / SIZE][i % SIZE]);
    }
  }

  void evaluate_inputs(const float* x, int64_t first, int64_t count) const {
    const float* nowhere = zeros(s.channels);
    for (int64_t t = 0; t < count; t++) {
      const float* places[SIZE][SIZE];
      window(first + t, s.padding, x, s.height, s.width, s.channels, nowhere, places);
      evaluate_window(P::B, places, s.channels, in + t * s.channels, in_plane);
    }
  }

  void evaluate_output_gradients(const float* d_y, int64_t first, int64_t count) const {
    const float* nowhere = zeros(s.filters);
    for (int64_t t = 0; t < count; t++) {
      const float* places[OUT][OUT];
      window(first + t, 0, d_y, s.rows(), s.columns(), s.filters, nowhere, places);
      evaluate_window(P::A, places, s.filters, out + t * s.filters, out_plane);
    }
  }

  void collect_outputs(const float* bias, float* y, int64_t first, int64_t count) const {
    for (int64_t t = 0; t < count; t++) {
      float* places[OUT][OUT];
      window(first + t, 0, y, s.rows(), s.columns(), s.filters, outside, places);
      for (int64_t k = 0; k < s.filters; k += V) {
        Lanes points[SIZE][SIZE], made[OUT][OUT];
        for (int64_t i = 0; i < ALL; i++) points[i / SIZE][i % SIZE] = get(out + i * out_plane + t * s.filters + k);
        collect_both(P::A, points, made);
        for (int64_t i = 0; i < OUT; i++)
          for (int64_t j = 0; j < OUT; j++) put(places[i][j] + k, bias ? made[i][j] + get(bias + k) : made[i][j]);
      }
    }
  }

  void collect_input_gradients(float* d_x, int64_t first, int64_t count) const {
    for (int64_t t = 0; t < count; t++) {
      float* places[SIZE][SIZE];
      window(first + t, s.padding, d_x, s.height, s.width, s.channels, outside, places);
      for (int64_t c = 0; c < s.channels; c += V) {
        Lanes points[SIZE][SIZE], made[SIZE][SIZE];
        for (int64_t i = 0; i < ALL; i++) points[i / SIZE][i % SIZE] = get(in + i * in_plane + t * s.channels + c);
        collect_both(P::B, points, made);
        for (int64_t i = 0; i < SIZE; i++)
          for (int64_t j = 0; j < SIZE; j++) put(places[i][j] + c, get(places[i][j] + c) + made[i][j]);
      }
    }
  }

  // To planes of (channels, filters), or of (filters, channels).
  void evaluate_weights(const float* weight, float* to, bool filters_first) const {
    const int64_t columns = filters_first ? s.channels : s.filters, rows = filters_first ? s.filters : s.channels;
    for (int64_t r = 0; r < rows; r++)
      for (int64_t c = 0; c < columns; c += V) {
        Lanes given[SIDE][SIDE], points[SIZE][SIZE];
        for (int64_t i = 0; i < SIDE; i++)
          for (int64_t j = 0; j < SIDE; j++)
            for (int64_t l = 0; l < V; l++)
              given[i][j][l] = weight[filters_first ? s.weight(r, c + l, i, j) : s.weight(c + l, r, i, j)];
        evaluate_both(P::G, given, points);
        for (int64_t i = 0; i < ALL; i++) put(to + i * weight_plane + r * columns + c, points[i / SIZE][i % SIZE]);
      }
  }

  void collect_weight_gradients(float* d_weight) const {
    for (int64_t c = 0; c < s.channels; c++)
      for (int64_t k = 0; k < s.filters; k += V) {
        Lanes points[SIZE][SIZE], made[SIDE][SIDE];
        for (int64_t i = 0; i < ALL; i++) points[i / SIZE][i % SIZE] = get(weights + i * weight_plane + c * s.filters + k);
        collect_both(P::G, points, made);
        for (int64_t i = 0; i < SIDE; i++)
          for (int64_t j = 0; j < SIDE; j++)
            for (int64_t l = 0; l < V; l++) d_weight[s.weight(k + l, c, i, j)] = made[i][j][l];
      }
  }

 public:
  Tiles(const Shape& shape, float* room)
      : s(shape),
        in(room),
        out(in + ALL * in_plane),
        weights(out + ALL * out_plane),
        others(weights + ALL * weight_plane),
        outside(others + ALL * weight_plane) {}

  static int64_t room(const Shape& shape) {
    const Tiles tiles(shape, nullptr);
    return tiles.outside - tiles.in + (shape.channels > shape.filters ? shape.channels : shape.filters);
  }

  void forward(const float* x, const float* weight, const float* bias, float* y) const {
    evaluate_weights(weight, weights, false);
    for (int64_t first = 0; first < tiles; first += TOGETHER) {
      const int64_t count = least(TOGETHER, tiles - first);
      evaluate_inputs(x, first, count);
      for (int64_t i = 0; i < ALL; i++)
        product({in + i * in_plane, count, s.channels, 1, 0, s.channels, 1}, weights + i * weight_plane, s.filters, s.filters,
                nullptr, 0, out + i * out_plane, s.filters);
      collect_outputs(bias, y, first, count);
    }
  }

  void backward(const float* x, const float* weight, const float* d_y, float* d_x, float* d_weight) const {
    std::memset(weights, 0, 4 * ALL * weight_plane);
    if (d_x) {
      evaluate_weights(weight, others, true);
      std::memset(d_x, 0, 4 * s.images * s.height * s.width * s.channels);
    }
    for (int64_t first = 0; first < tiles; first += TOGETHER) {
      const int64_t count = least(TOGETHER, tiles - first);
      evaluate_inputs(x, first, count);
      evaluate_output_gradients(d_y, first, count);
      for (int64_t i = 0; i < ALL; i++) {
        float *to = weights + i * weight_plane, *points = in + i * in_plane, *d_out = out + i * out_plane;
        product({points, s.channels, 1, 1, 0, count, s.channels}, d_out, s.filters, s.filters, to, s.filters, to, s.filters);
        if (d_x)
          product({d_out, count, s.filters, 1, 0, s.filters, 1}, others + i * weight_plane, s.channels, s.channels, nullptr, 0,
                  points, s.channels);
      }
      if (d_x) collect_input_gradients(d_x, first, count);
    }
    collect_weight_gradients(d_weight);
  }
};

}  // namespace

int64_t tiled_room(const Shape& shape) { return shape.side == 3 ? Tiles<3>::room(shape) : Tiles<5>::room(shape); }

void tiled_forward(const Shape& shape, const float* x, const float* weight, const float* bias, float* y, float* room) {
  if (shape.side == 3) Tiles<3>(shape, room).forward(x, weight, bias, y);
  else Tiles<5>(shape, room).forward(x, weight, bias, y);
}

void tiled_backward(const Shape& shape, const float* x, const float* weight, const float* d_y, float* d_x, float* d_weight,
                    float* room) {
  if (shape.side == 3) Tiles<3>(shape, room).backward(x, weight, d_y, d_x, d_weight);
  else Tiles<5>(shape, room).backward(x, weight, d_y, d_x, d_weight);
}

}  // namespace convolution
