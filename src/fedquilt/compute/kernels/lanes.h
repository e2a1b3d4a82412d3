// Registers of floats, for whatever processor this is compiled for.
//
// Results must not depend on the compiler, nor on how wide registers are: products that are added are rounded once only where
// `fused` says so (the compiler is told to fuse nothing by itself), and sums run over LANES numbers side by side.
//
// Roots and logarithms are the compiler's builtins: reading <cmath> would take a quarter of a second of each file's compiling.

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

constexpr int64_t LANES = 16;  // numbers that sums run over side by side, in one register or several

typedef float Lanes __attribute__((vector_size(4 * V)));
typedef float Unaligned __attribute__((vector_size(4 * V), aligned(4), may_alias));
typedef int32_t Bits __attribute__((vector_size(4 * V)));

inline Lanes all(float x) { return x - Lanes{}; }  // x + 0 would not be the same for -0, and take an instruction

// a b + c, rounded once. Processors without such an instruction round twice.
inline Lanes fused(Lanes a, Lanes b, Lanes c) {
#if defined(__AVX512F__) && !defined(__clang__)
  return __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4);
#elif defined(__FMA__) && !defined(__clang__)
  return __builtin_ia32_vfmaddps256(a, b, c);
#elif defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  Lanes out;
  for (int64_t l = 0; l < V; l++) out[l] = __builtin_fmaf(a[l], b[l], c[l]);
  return out;
#else
  return a * b + c;
#endif
}

inline Lanes fused(Lanes a, Lanes b, float c) { return fused(a, b, all(c)); }
inline Lanes fused(float a, Lanes b, Lanes c) { return fused(all(a), b, c); }

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

inline Lanes get(const float* from) { return *reinterpret_cast<const Unaligned*>(from); }
inline void put(float* to, Lanes lanes) { *reinterpret_cast<Unaligned*>(to) = lanes; }

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// e^x to two units in the last place; NaN stays NaN. 2^n comes from the exponent's bits, e^r from a polynomial.
inline Lanes exponential(Lanes x) {
  const Lanes lowest = all(-87.0f), highest = all(88.0f), magic = all(12582912.0f);
  const Lanes inside = x < lowest ? lowest : (x > highest ? highest : x);
  const Lanes shifted = fused(1.44269504f, inside, magic), n = shifted - magic;
  const Lanes r = fused(2.12194440e-4f, n, fused(-0.693359375f, n, inside));
  Lanes p = all(1.9875691500e-4f);
  p = fused(p, r, 1.3981999507e-3f);
  p = fused(p, r, 8.3334519073e-3f);
  p = fused(p, r, 4.1665795894e-2f);
  p = fused(p, r, 1.6666665459e-1f);
  p = fused(p, r, 5.0000001201e-1f);
  p = fused(p * r, r, r) + 1.0f;
  const Bits power = ((Bits)shifted - (Bits)magic) << 23;
  const Bits scaled = (Bits)p + power;
  return x == x ? (Lanes)scaled : x;
}

}  // namespace
