// What the files of the kernel for convolutions share. They are compiled side by side, which takes less time.
//
// Images have channels last, (N, H, W, C); the channels that are written are whole groups of LANES.

#pragma once

#include "lanes.h"

namespace convolution __attribute__((visibility("hidden"))) {

// A convolution with stride 1 of `images` images of (height, width, channels), with `padding` zeros on every side, by
// `filters` filters of (side, side, channels). A weight is found by its strides: PyTorch has it in more than one order.
struct Shape {
  int64_t images, height, width, channels, filters, side, padding;
  int64_t by_filter, by_channel, by_row, by_column;

  int64_t rows() const { return height + 2 * padding - side + 1; }
  int64_t columns() const { return width + 2 * padding - side + 1; }
  int64_t weight(int64_t filter, int64_t channel, int64_t row, int64_t column) const {
    return filter * by_filter + channel * by_channel + row * by_row + column * by_column;
  }
};

// The left matrix of a product. Its columns are counted by two numbers: an outer one and, in it, an inner one.
struct Left {
  const float* first;
  int64_t rows, row_step, outer, outer_step, inner, inner_step;
};

// out = start + left · right, where `right` and `out` have `width` columns, a multiple of LANES, and `start` is null for zeros.
// Every number is summed up in the order of the columns of `left`, whatever the processor.
void product(const Left& left, const float* right, int64_t right_step, int64_t width, const float* start, int64_t start_step,
             float* out, int64_t out_step);

// Few channels in: as a product, for filters of any size. Gradients of the input are not computed.
int64_t direct_room(const Shape& shape);
void direct_forward(const Shape& shape, const float* x, const float* weight, const float* bias, float* y, float* room);
void direct_backward(const Shape& shape, const float* x, const float* d_y, float* d_weight, float* room);

// Groups of LANES channels in: by Winograd's algorithm, for filters of 3 or 5. `d_x` may be null.
int64_t tiled_room(const Shape& shape);
void tiled_forward(const Shape& shape, const float* x, const float* weight, const float* bias, float* y, float* room);
void tiled_backward(const Shape& shape, const float* x, const float* weight, const float* d_y, float* d_x, float* d_weight,
                    float* room);

}  // namespace convolution
