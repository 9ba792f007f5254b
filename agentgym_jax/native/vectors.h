// Vectors of floats with the width of the processor's registers.

#ifndef AGENTGYM_JAX_NATIVE_VECTORS_H_
#define AGENTGYM_JAX_NATIVE_VECTORS_H_

#include <cstdint>
#include <cstring>

namespace agentgym {

#ifdef __AVX512F__
constexpr int64_t kLanes = 16;
#else
constexpr int64_t kLanes = 8;
#endif

typedef float Vector __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));
typedef int32_t Integers __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));

typedef uint16_t Halves __attribute__((vector_size(kLanes * 2), aligned(2), may_alias));

// Upper half of a float32. It is widened to float32, which is exact, before it is added.
struct BFloat16 {
  uint16_t bits;
};

inline float Widened(float x) { return x; }
inline float Widened(BFloat16 x) {
  const uint32_t bits = uint32_t{x.bits} << 16;
  float wide;
  std::memcpy(&wide, &bits, sizeof(wide));
  return wide;
}

inline Vector Load(const float* p) { return *reinterpret_cast<const Vector*>(p); }
inline Vector Load(const BFloat16* p) {
  const Integers bits = __builtin_convertvector(*reinterpret_cast<const Halves*>(p), Integers) << 16;
  Vector v;
  std::memcpy(&v, &bits, sizeof(v));
  return v;
}
inline void Store(float* p, Vector v) { *reinterpret_cast<Vector*>(p) = v; }

// Loads a vector into a register. Without this, GCC reads the memory again for each product.
template <typename T>
inline Vector LoadOnce(const T* p) {
  Vector v = Load(p);
#if defined(__x86_64__) && defined(__AVX__)
  asm("" : "+x"(v));
#endif
  return v;
}

// Returns the sum of all lanes; adds halves until one lane remains.
inline float Total(Vector v) {
  typedef float Quarter __attribute__((vector_size(16), may_alias));
  constexpr int64_t kQuarters = kLanes / 4;
  Quarter parts[kQuarters];
  std::memcpy(parts, &v, sizeof(v));
  for (int64_t half = kQuarters / 2; half; half /= 2)
    for (int64_t i = 0; i < half; ++i) parts[i] += parts[i + half];
  const Quarter q = parts[0];
  return (q[0] + q[2]) + (q[1] + q[3]);
}

constexpr int64_t kRows = 4;     // rows of the left operand in a tile
constexpr int64_t kColumns = 3;  // columns of the result in a tile: 12 sums in registers

// Dot products of kRows rows of one matrix with kColumns rows of another.
struct Sums {
  Vector of[kRows][kColumns];

  inline void Clear() { std::memset(of, 0, sizeof(of)); }

  template <typename T>
  inline void Add(const float* const x[kRows], const T* const e[kColumns], int64_t k) {
    const Vector a = LoadOnce(e[0] + k), b = LoadOnce(e[1] + k), c = LoadOnce(e[2] + k);
    for (int64_t r = 0; r < kRows; ++r) {
      const Vector v = LoadOnce(x[r] + k);
      of[r][0] += a * v;
      of[r][1] += b * v;
      of[r][2] += c * v;
    }
  }
};

// Returns e^x for x <= 0, with an error of 2 units in the last place. The result is 0 if e^x is below
// the smallest normal number, and NaN if x is NaN. With x = n log 2 + r and |r| <= log(2) / 2, the
// result is 2^n times the series of e^r.
inline Vector Exp(Vector x) {
  const Vector rounded = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: its last bits are n
  const Vector n = rounded - 12582912.0f;
  const Vector r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Vector p = r * (1.0f / 5040) + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  Integers bits;
  std::memcpy(&bits, &rounded, sizeof(bits));
  bits = (bits + 127) << 23;
  Vector power;
  std::memcpy(&power, &bits, sizeof(power));
  return x <= -87.0f ? Vector{} : p * power;
}

}  // namespace agentgym

#endif  // AGENTGYM_JAX_NATIVE_VECTORS_H_
