// Registers of floats, for whatever processor this is compiled for.

#pragma once

#include <cstdint>
#include <cstring>

namespace {

#if defined(__AVX512F__)
constexpr int64_t V = 16;  // floats in a register
#elif defined(__AVX__)
constexpr int64_t V = 8;
#else
constexpr int64_t V = 4;
#endif

typedef float Lanes __attribute__((vector_size(4 * V)));
typedef float Unaligned __attribute__((vector_size(4 * V), aligned(4), may_alias));
typedef int32_t Bits __attribute__((vector_size(4 * V)));

inline Lanes all(float x) { return Lanes{} + x; }

inline Lanes load(const float* from, int64_t count) {
  if (count == V) return *reinterpret_cast<const Unaligned*>(from);
  Lanes lanes = {};
  std::memcpy(&lanes, from, 4 * count);
  return lanes;
}

inline void store(float* to, Lanes lanes, int64_t count) {
  if (count == V) *reinterpret_cast<Unaligned*>(to) = lanes;
  else std::memcpy(to, &lanes, 4 * count);
}

// e^x to two units in the last place; NaN stays NaN. 2^n comes from the exponent's bits, e^r from a polynomial.
inline Lanes exponential(Lanes x) {
  const Lanes lowest = all(-87.0f), highest = all(88.0f), magic = all(12582912.0f);
  const Lanes inside = x < lowest ? lowest : (x > highest ? highest : x);
  const Lanes shifted = inside * 1.44269504f + magic, n = shifted - magic;
  const Lanes r = (inside - n * 0.693359375f) - n * -2.12194440e-4f;
  Lanes p = all(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const Bits power = ((Bits)shifted - (Bits)magic) << 23;
  const Bits scaled = (Bits)p + power;
  return x == x ? (Lanes)scaled : x;
}

}  // namespace
