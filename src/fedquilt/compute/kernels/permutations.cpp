// The permutations that NumPy's generators draw from keys, for many keys in one call.
//
// A key is the BLAKE2b hash, of 16 bytes, of a text; the generator is Philox 4×64-10 (Salmon et al. 2011), counting from 1; a
// permutation is Fisher's and Yates's shuffle from the last place on. A number up to a bound is drawn from as many bits as the
// bound has, again and again until it fits, from halves of 64 bits, the lower one first. `permutations.py` compares the result
// with NumPy's before it is used.

#include <cstdint>
#include <cstring>

namespace {

constexpr uint64_t INITIAL[8] = {0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
                                 0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};
constexpr uint8_t SIGMA[12][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3}};
constexpr int64_t BLOCK = 128;

inline uint64_t rotated(uint64_t x, int by) { return x >> by | x << (64 - by); }

inline void mix(uint64_t* v, int a, int b, int c, int d, uint64_t x, uint64_t y) {
  v[a] += v[b] + x, v[d] = rotated(v[d] ^ v[a], 32);
  v[c] += v[d], v[b] = rotated(v[b] ^ v[c], 24);
  v[a] += v[b] + y, v[d] = rotated(v[d] ^ v[a], 16);
  v[c] += v[d], v[b] = rotated(v[b] ^ v[c], 63);
}

// The first 16 bytes of the hash of a text that fits into one block.
void hash(const char* text, int64_t length, uint64_t (&key)[2]) {
  uint64_t words[16] = {}, v[16];
  std::memcpy(words, text, length);
  std::memcpy(v, INITIAL, sizeof INITIAL);
  std::memcpy(v + 8, INITIAL, sizeof INITIAL);
  const uint64_t first = v[0] ^= 0x01010000 ^ 16;  // one level, no key, 16 bytes
  v[12] ^= length, v[14] = ~v[14];
  for (const auto& s : SIGMA) {
    mix(v, 0, 4, 8, 12, words[s[0]], words[s[1]]), mix(v, 1, 5, 9, 13, words[s[2]], words[s[3]]);
    mix(v, 2, 6, 10, 14, words[s[4]], words[s[5]]), mix(v, 3, 7, 11, 15, words[s[6]], words[s[7]]);
    mix(v, 0, 5, 10, 15, words[s[8]], words[s[9]]), mix(v, 1, 6, 11, 12, words[s[10]], words[s[11]]);
    mix(v, 2, 7, 8, 13, words[s[12]], words[s[13]]), mix(v, 3, 4, 9, 14, words[s[14]], words[s[15]]);
  }
  key[0] = first ^ v[0] ^ v[8], key[1] = INITIAL[1] ^ v[1] ^ v[9];
}

class Philox {
  uint64_t key[2], counter = 0, drawn[4];
  uint32_t upper = 0;
  int place = 4;
  bool half = false;

  uint64_t next() {
    if (place == 4) {
      uint64_t c[4] = {++counter, 0, 0, 0}, k[2] = {key[0], key[1]};
      for (int round = 0; round < 10; round++, k[0] += 0x9e3779b97f4a7c15, k[1] += 0xbb67ae8584caa73b) {
        const __uint128_t one = static_cast<__uint128_t>(c[0]) * 0xd2e7470ee14c6c93;
        const __uint128_t two = static_cast<__uint128_t>(c[2]) * 0xca5a826395121157;
        const uint64_t made[4] = {static_cast<uint64_t>(two >> 64) ^ c[1] ^ k[0], static_cast<uint64_t>(two),
                                  static_cast<uint64_t>(one >> 64) ^ c[3] ^ k[1], static_cast<uint64_t>(one)};
        std::memcpy(c, made, sizeof c);
      }
      std::memcpy(drawn, c, sizeof drawn);
      place = 0;
    }
    return drawn[place++];
  }

  uint32_t next_half() {
    if (half) return half = false, upper;
    const uint64_t both = next();
    half = true, upper = static_cast<uint32_t>(both >> 32);
    return static_cast<uint32_t>(both);
  }

 public:
  explicit Philox(const uint64_t (&from)[2]) : key{from[0], from[1]} {}

  // A number from 0 to `last`, which is not 0.
  uint32_t up_to(uint32_t last) {
    const uint32_t mask = UINT32_MAX >> __builtin_clz(last);
    for (;;)
      if (const uint32_t drawn = next_half() & mask; drawn <= last) return drawn;
  }
};

// Writes a number, of at most 20 characters, after a stroke.
char* written(char* to, int64_t number) {
  char digits[20];
  int count = 0;
  for (uint64_t rest = number; rest || !count; rest /= 10) digits[count++] = static_cast<char>('0' + rest % 10);
  *to++ = '/';
  while (count) *to++ = digits[--count];
  return to;
}

}  // namespace

// For every key, the text and two numbers, `draws` permutations of 0 … size − 1, one after the other. Texts with their numbers
// have at most 128 characters, numbers are not negative, sizes are below 2^32.
extern "C" void draw_permutations(const char* text, int64_t length, const int64_t* numbers, const int64_t* others,
                                  const int64_t* sizes, const int64_t* draws, int64_t keys, int64_t* out) {
  char whole[BLOCK];
  std::memcpy(whole, text, length);
  for (int64_t i = 0; i < keys; i++) {
    uint64_t key[2];
    hash(whole, written(written(whole + length, numbers[i]), others[i]) - whole, key);
    Philox philox(key);
    for (int64_t draw = 0; draw < draws[i]; draw++, out += sizes[i]) {
      for (int64_t j = 0; j < sizes[i]; j++) out[j] = j;
      for (int64_t j = sizes[i] - 1; j > 0; j--) {
        const uint32_t with = philox.up_to(static_cast<uint32_t>(j));
        const int64_t kept = out[j];
        out[j] = out[with], out[with] = kept;
      }
    }
  }
}
