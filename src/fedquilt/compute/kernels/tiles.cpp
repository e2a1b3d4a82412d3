// How many tile registers the processor says that it has for matrix products (AMX).

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

extern "C" int64_t tiles() {
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(0x1D, 1, &eax, &ebx, &ecx, &edx)) return 0;
  return ebx >> 16;
#else
  return 0;
#endif
}
