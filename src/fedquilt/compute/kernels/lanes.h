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

}  // namespace
