// Rows of numbers, each times its scale and rounded to whole numbers, ties to even, added to a vector of 64-bit integers.

#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

// Added to a number below 2^51, it leaves the number's nearest whole one in the last bits of the sum.
constexpr double shifting = 6755399441055744.0;  // 1.5 * 2^52

inline uint64_t bits_of(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Sizes of floats are in the order of their bits, of which a compiler finds the largest several at a time.
inline float largest_of(const float* values, int64_t count) {
  int32_t most = 0;
  for (int64_t i = 0; i < count; i++) {
    int32_t bits;
    std::memcpy(&bits, values + i, sizeof bits);
    bits &= 0x7fffffff;
    most = bits > most ? bits : most;
  }
  float found;
  std::memcpy(&found, &most, sizeof found);
  return found;
}

}  // namespace

// `largest` becomes the largest size of a row's terms. The integers wrap around: whoever calls looks at `largest`.
extern "C" void exact_add(const float* values, int64_t rows, int64_t count, const double* scales, uint64_t* total,
                          double* largest) {
  for (int64_t row = 0; row < rows; row++, values += count) {
    const double scale = scales[row];
    largest[row] = largest_of(values, count) * scale;
    if (largest[row] < 2251799813685248.0)  // 2^51
      for (int64_t i = 0; i < count; i++) total[i] += bits_of(values[i] * scale + shifting) - bits_of(shifting);
    else
      for (int64_t i = 0; i < count; i++) total[i] += static_cast<uint64_t>(std::llrint(values[i] * scale));
  }
}
