// The largest value of every window of an image, and its gradient, with channels last: (N, H, W, C).
//
// A window that reaches beyond the image is cut off. As in PyTorch, the first of equal values is taken, and a NaN is larger
// than anything: the results are the same to the bit.

#include "lanes.h"

namespace {

// Windows of `size` places, `stride` apart, over images of (height, width, channels).
struct Windows {
  int64_t height, width, channels, rows, columns, size_y, size_x, stride_y, stride_x;

  // Calls see(where the window's first place is, its rows, its columns) for every output of an image, in order.
  template <typename See>
  void each(See see) const {
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < columns; j++) {
        const int64_t y = i * stride_y, x = j * stride_x;
        see((y * width + x) * channels, y + size_y < height ? size_y : height - y, x + size_x < width ? size_x : width - x);
      }
  }
};

inline Bits load_bits(const int32_t* from, int64_t count) { return (Bits)load(reinterpret_cast<const float*>(from), count); }

}  // namespace

extern "C" {

// `where` is which place of its window, counted row by row, every output comes from.
void max_pool_forward(const float* in, float* out, int32_t* where, int64_t images, int64_t height, int64_t width,
                      int64_t channels, int64_t rows, int64_t columns, int64_t size_y, int64_t size_x, int64_t stride_y,
                      int64_t stride_x) {
  const Windows windows{height, width, channels, rows, columns, size_y, size_x, stride_y, stride_x};
  for (int64_t n = 0; n < images; n++, in += height * width * channels)
    windows.each([&](int64_t first, int64_t window_rows, int64_t window_columns) {
      for (int64_t c = 0; c < channels; c += V) {
        const int64_t m = channels - c < V ? channels - c : V;
        Lanes largest = load(in + first + c, m);
        Bits place = {};
        for (int64_t y = 0; y < window_rows; y++)
          for (int64_t x = 0; x < window_columns; x++) {
            const Lanes value = load(in + first + (y * width + x) * channels + c, m);
            const Bits taken = (value > largest) | (value != value);
            largest = taken ? value : largest;
            place = taken ? Bits{} + static_cast<int32_t>(y * size_x + x) : place;
          }
        store(out + c, largest, m);
        store(reinterpret_cast<float*>(where) + c, (Lanes)place, m);
      }
      out += channels, where += channels;
    });
}

// Where windows overlap or leave something out, `d_in` must be zeros, and `add` true.
void max_pool_backward(const float* d_out, const int32_t* where, float* d_in, int64_t images, int64_t height, int64_t width,
                       int64_t channels, int64_t rows, int64_t columns, int64_t size_y, int64_t size_x, int64_t stride_y,
                       int64_t stride_x, int64_t add) {
  const Windows windows{height, width, channels, rows, columns, size_y, size_x, stride_y, stride_x};
  for (int64_t n = 0; n < images; n++, d_in += height * width * channels)
    windows.each([&](int64_t first, int64_t window_rows, int64_t window_columns) {
      for (int64_t c = 0; c < channels; c += V) {
        const int64_t m = channels - c < V ? channels - c : V;
        const Lanes d = load(d_out + c, m);
        const Bits place = load_bits(where + c, m);
        for (int64_t y = 0; y < window_rows; y++)
          for (int64_t x = 0; x < window_columns; x++) {
            float* to = d_in + first + (y * width + x) * channels + c;
            const Bits here = place == Bits{} + static_cast<int32_t>(y * size_x + x);
            const Lanes share = here ? d : Lanes{};
            store(to, add ? load(to, m) + share : share, m);
          }
      }
      d_out += channels, where += channels;
    });
}
}
