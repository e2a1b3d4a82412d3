// y = max(scale · x + before + shortcut, 0) + after, with one number each for `scale`, `before` and `after`, in one pass over the
// values; and its gradient. Values are rounded after each operation, as PyTorch does.

#include "lanes.h"

namespace {

constexpr int64_t GROUP = 1024;  // values whose gradients are summed up in float32
constexpr int64_t PARTS = LANES / V;

struct Numbers {
  float scale, before;

  // What is cut off at 0.
  Lanes of(Lanes x, const float* shortcut, int64_t i, int64_t m) const {
    const Lanes z = scale * x + before;
    return shortcut ? z + load(shortcut + i, m) : z;
  }
};

// Sums of LANES numbers side by side, added up in double precision group by group, in one order for any width of registers.
struct Sum {
  float lanes[LANES] = {};
  double total = 0.0;

  void add(int64_t part, Lanes x) {
    float* at = lanes + part * V;
    store(at, load(at, V) + x, V);
  }
  void close() {
    for (float& lane : lanes) total += lane, lane = 0.0f;
  }
};

}  // namespace

extern "C" {

// `shortcut` and `after` may be null.
void rectified_forward(const float* x, const float* scale, const float* before, const float* shortcut, const float* after,
                       float* y, int64_t count) {
  const Numbers numbers{scale ? *scale : 1.0f, *before};
  const Lanes added = all(after ? *after : 0.0f);
  for (int64_t i = 0; i < count; i += V) {
    const int64_t m = count - i < V ? count - i : V;
    const Lanes z = numbers.of(load(x + i, m), shortcut, i, m);
    const Lanes kept = z <= Lanes{} ? Lanes{} : z;  // NaN stays NaN
    store(y + i, after ? kept + added : kept, m);
  }
}

// The gradients of x and of the shortcut, which may be null, and in `sums` those of scale, before and after.
void rectified_backward(const float* d_y, const float* x, const float* scale, const float* before, const float* shortcut,
                        float* d_x, float* d_shortcut, double* sums, int64_t count) {
  const Numbers numbers{scale ? *scale : 1.0f, *before};
  Sum of_scale, of_before, of_after;
  for (int64_t first = 0; first < count; first += GROUP) {
    const int64_t end = first + GROUP < count ? first + GROUP : count;
    for (int64_t i = first; i < end; i += V) {
      const int64_t m = end - i < V ? end - i : V, part = (i - first) / V % PARTS;
      const Lanes d = load(d_y + i, m), value = load(x + i, m);
      const Lanes kept = numbers.of(value, shortcut, i, m) <= Lanes{} ? Lanes{} : d;
      store(d_x + i, scale ? kept * numbers.scale : kept, m);
      if (d_shortcut) store(d_shortcut + i, kept, m);
      of_before.add(part, kept), of_after.add(part, d);
      if (scale) of_scale.add(part, kept * value);
    }
    of_scale.close(), of_before.close(), of_after.close();
  }
  sums[0] = of_scale.total, sums[1] = of_before.total, sums[2] = of_after.total;
}
}
