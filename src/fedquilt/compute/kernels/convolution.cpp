// Two-dimensional convolutions with stride 1, and their gradients, with channels last: (N, H, W, C).
//
// With few channels in, as a product of all windows with the filters, whose rows of numbers lie side by side in the image; with
// groups of LANES channels, by Winograd's algorithm (convolution_tiles.cpp). Every sum has an order of its own, so that the
// results depend neither on the compiler nor on the width of registers, and an image's not on its neighbours.

#include "convolution.h"

namespace convolution {

namespace {

// An image with zeros around it.
struct Padded {
  int64_t line, size;  // floats in a line, and in all

  explicit Padded(const Shape& s)
      : line((s.width + 2 * s.padding) * s.channels), size((s.height + 2 * s.padding) * line) {}

  void fill(const Shape& s, const float* image, float* to) const {
    for (int64_t y = 0; y < s.height; y++)
      std::memcpy(to + (y + s.padding) * line + s.padding * s.channels, image + y * s.width * s.channels,
                  4 * s.width * s.channels);
  }
};

int64_t weights_of_filter(const Shape& s) { return s.side * s.side * s.channels; }

// Calls see(place in rows of filters, place in the weight).
template <typename See>
void each_weight(const Shape& s, See see) {
  int64_t place = 0;
  for (int64_t i = 0; i < s.side; i++)
    for (int64_t j = 0; j < s.side; j++)
      for (int64_t c = 0; c < s.channels; c++)
        for (int64_t k = 0; k < s.filters; k++) see(place++, s.weight(k, c, i, j));
}

}  // namespace

int64_t direct_room(const Shape& s) { return Padded(s).size + 2 * weights_of_filter(s) * s.filters; }

void direct_forward(const Shape& s, const float* x, const float* weight, const float* bias, float* y, float* room) {
  const Padded padded(s);
  float *image = room, *weights = room + padded.size;
  const int64_t rows = s.rows(), columns = s.columns();
  std::memset(image, 0, 4 * padded.size);
  each_weight(s, [&](int64_t to, int64_t from) { weights[to] = weight[from]; });
  for (int64_t n = 0; n < s.images; n++, x += s.height * s.width * s.channels) {
    padded.fill(s, x, image);
    for (int64_t i = 0; i < rows; i++, y += columns * s.filters)
      product({image + i * padded.line, columns, s.channels, s.side, padded.line, s.side * s.channels, 1}, weights, s.filters,
              s.filters, bias, 0, y, s.filters);
  }
}

void direct_backward(const Shape& s, const float* x, const float* d_y, float* d_weight, float* room) {
  const Padded padded(s);
  const int64_t rows = s.rows(), columns = s.columns(), count = weights_of_filter(s) * s.filters, wide = s.side * s.channels;
  float *image = room, *sums = room + padded.size, *of_image = sums + count;
  std::memset(image, 0, 4 * padded.size);
  std::memset(sums, 0, 4 * count);
  for (int64_t n = 0; n < s.images; n++, x += s.height * s.width * s.channels, d_y += rows * columns * s.filters) {
    padded.fill(s, x, image);
    for (int64_t i = 0; i < s.side; i++)
      product({image + i * padded.line, wide, 1, rows, padded.line, columns, s.channels}, d_y, s.filters, s.filters, nullptr, 0,
              of_image + i * wide * s.filters, s.filters);
    for (int64_t i = 0; i < count; i += V) put(sums + i, get(sums + i) + get(of_image + i));
  }
  each_weight(s, [&](int64_t from, int64_t to) { d_weight[to] = sums[from]; });
}

}  // namespace convolution

using convolution::Shape;

extern "C" {

// How many floats of room a convolution needs besides.
int64_t convolution_room(int64_t images, int64_t height, int64_t width, int64_t channels, int64_t filters, int64_t side,
                         int64_t padding) {
  const Shape shape{images, height, width, channels, filters, side, padding, 0, 0, 0, 0};
  return channels % LANES ? convolution::direct_room(shape) : convolution::tiled_room(shape);
}

// `bias` may be null.
void convolution_forward(const float* x, const float* weight, const float* bias, float* y, float* room, int64_t images,
                         int64_t height, int64_t width, int64_t channels, int64_t filters, int64_t side, int64_t padding,
                         int64_t by_filter, int64_t by_channel, int64_t by_row, int64_t by_column) {
  const Shape shape{images, height, width, channels, filters, side, padding, by_filter, by_channel, by_row, by_column};
  if (channels % LANES) convolution::direct_forward(shape, x, weight, bias, y, room);
  else convolution::tiled_forward(shape, x, weight, bias, y, room);
}

// `d_x` and `d_bias` may be null; `d_weight` has the strides of `weight`.
void convolution_backward(const float* x, const float* weight, const float* d_y, float* d_x, float* d_weight, float* d_bias,
                          float* room, int64_t images, int64_t height, int64_t width, int64_t channels, int64_t filters,
                          int64_t side, int64_t padding, int64_t by_filter, int64_t by_channel, int64_t by_row,
                          int64_t by_column) {
  const Shape shape{images, height, width, channels, filters, side, padding, by_filter, by_channel, by_row, by_column};
  if (channels % LANES) convolution::direct_backward(shape, x, d_y, d_weight, room);
  else convolution::tiled_backward(shape, x, weight, d_y, d_x, d_weight, room);
  if (!d_bias) return;
  const int64_t places = shape.rows() * shape.columns();
  for (int64_t k = 0; k < filters; k += V) {
    Lanes sum = {};
    for (int64_t n = 0; n < images; n++) {
      Lanes of_image = {};
      for (int64_t i = 0; i < places; i++) of_image += get(d_y + (n * places + i) * filters + k);
      sum += of_image;
    }
    put(d_bias + k, sum);
  }
}
}
