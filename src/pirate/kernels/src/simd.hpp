// Vectors of V floats for the instruction set that this copy of the sources is compiled for.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "pool.hpp"

namespace pirate::PIRATE_VARIANT {

#if defined(__AVX512F__)
constexpr int V = 16;
#elif defined(__AVX2__)
constexpr int V = 8;
#else
constexpr int V = 4;
#endif

typedef float vf __attribute__((vector_size(V * 4)));
typedef std::int32_t vi __attribute__((vector_size(V * 4)));

#define PIRATE_INLINE inline __attribute__((always_inline))

PIRATE_INLINE vf load(const float* p) {
  vf v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
PIRATE_INLINE vi load(const std::int32_t* p) {
  vi v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
PIRATE_INLINE void store(float* p, vf v) { __builtin_memcpy(p, &v, sizeof v); }

// Writes past the cache, to an address that is a multiple of the vector's size; `arrived` before others read it.
PIRATE_INLINE void stream(float* p, vf v) {
#if defined(__AVX512F__)
  _mm512_stream_ps(p, (__m512)v);
#elif defined(__AVX2__)
  _mm256_stream_ps(p, (__m256)v);
#elif defined(__SSE2__)
  _mm_stream_ps(p, (__m128)v);
#else
  store(p, v);
#endif
}
PIRATE_INLINE void arrived() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}
// Whether rows of k floats, `floats` in all, are better streamed: whole cache lines, too many to find again.
PIRATE_INLINE bool streamed(const float* p, int k, std::size_t floats) {
  return k % 16 == 0 && reinterpret_cast<std::uintptr_t>(p) % 64 == 0 && floats >= (std::size_t(1) << 22);
}

PIRATE_INLINE vf set(float x) { return x - vf{}; }

// Whether a lane of a mask is set.
PIRATE_INLINE bool any(vi mask) {
#if defined(__AVX512F__)
  return _mm512_movepi32_mask((__m512i)mask) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_ps((__m256)mask) != 0;
#else
  std::int32_t found = 0;
  for (int l = 0; l < V; ++l) found |= mask[l];
  return found != 0;
#endif
}

PIRATE_INLINE vf lanes() {  // 0, 1, 2, ...
  vf v;
  for (int l = 0; l < V; ++l) v[l] = l;
  return v;
}
PIRATE_INLINE vi lanes_int() {
  vi v;
  for (int l = 0; l < V; ++l) v[l] = l;
  return v;
}

// v[at[0]], v[at[1]], ..
PIRATE_INLINE vf permute(vf v, vi at) {
#if defined(__AVX512F__)
  return (vf)_mm512_permutexvar_ps((__m512i)at, (__m512)v);
#elif defined(__AVX2__)
  return (vf)_mm256_permutevar8x32_ps((__m256)v, (__m256i)at);
#else
  vf out;
  for (int l = 0; l < V; ++l) out[l] = v[at[l]];
  return out;
#endif
}

// The larger, the smaller; b where a is not a number.
PIRATE_INLINE vf vmax(vf a, vf b) {
#if defined(__AVX512F__)
  return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
  return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
  return a > b ? a : b;
#endif
}
PIRATE_INLINE vf vmin(vf a, vf b) {
#if defined(__AVX512F__)
  return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
  return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#else
  return a < b ? a : b;
#endif
}
PIRATE_INLINE vf vabs(vf a) { return (vf)((vi)a & 0x7fffffff); }

PIRATE_INLINE vf vsqrt(vf a) {
#if defined(__AVX512F__)
  return (vf)_mm512_sqrt_ps((__m512)a);
#elif defined(__AVX2__)
  return (vf)_mm256_sqrt_ps((__m256)a);
#else
  for (int l = 0; l < V; ++l) a[l] = __builtin_sqrtf(a[l]);
  return a;
#endif
}

PIRATE_INLINE vi truncate(vf a) { return __builtin_convertvector(a, vi); }
PIRATE_INLINE vf to_float(vi a) { return __builtin_convertvector(a, vf); }

// The first n floats of p, 0 in the other lanes; touches no memory after them.
PIRATE_INLINE vf load_first(const float* p, int n) {
  if (n >= V) return load(p);
#if defined(__AVX512F__)
  return (vf)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
#elif defined(__AVX2__)
  return (vf)_mm256_maskload_ps(p, (__m256i)(lanes_int() < n));
#else
  vf v = {};
  for (int l = 0; l < n; ++l) v[l] = p[l];
  return v;
#endif
}

// Writes the first n lanes only.
PIRATE_INLINE void store_first(float* p, vf v, int n) {
  if (n >= V) return store(p, v);
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
#elif defined(__AVX2__)
  _mm256_maskstore_ps(p, (__m256i)(lanes_int() < n), (__m256)v);
#else
  for (int l = 0; l < n; ++l) p[l] = v[l];
#endif
}

// The first n lanes of v, 0 in the others.
PIRATE_INLINE vf keep_first(vf v, int n) { return (vf)((vi)v & (lanes_int() < n)); }

// Brings the lines that hold p[0..n-1] towards the cache.
PIRATE_INLINE void prefetch(const float* p, int n) {
  for (int k = 0; k < n; k += 16) __builtin_prefetch(p + k);
}

// A row in vectors: body(k, part) for k = lo, lo + V, ..; part.load and part.store touch `part.n` lanes, all V
// but at the end of the row.
struct Whole {
  static constexpr int n = V;
  PIRATE_INLINE vf load(const float* p) const { return PIRATE_VARIANT::load(p); }
  PIRATE_INLINE void store(float* p, vf v) const { PIRATE_VARIANT::store(p, v); }
};
struct Part {
  int n;
  PIRATE_INLINE vf load(const float* p) const { return load_first(p, n); }
  PIRATE_INLINE void store(float* p, vf v) const { store_first(p, v, n); }
};

#define PIRATE_BODY __attribute__((always_inline))

template <class Body>
PIRATE_INLINE void vectors(int lo, int hi, Body body) {
  int k = lo;
  for (; k + V <= hi; k += V) body(k, Whole{});
  if (k < hi) body(k, Part{hi - k});
}

// V doubles, as two registers.
struct Doubles {
  typedef double half __attribute__((vector_size(V * 4)));
  half low = {}, high = {};
  PIRATE_INLINE void operator+=(const Doubles& o) { low += o.low, high += o.high; }
  PIRATE_INLINE Doubles operator-(const Doubles& o) const { return {low - o.low, high - o.high}; }
  PIRATE_INLINE Doubles operator*(const Doubles& o) const { return {low * o.low, high * o.high}; }
  PIRATE_INLINE void add_product(const Doubles& a, const Doubles& b) {
    low += a.low * b.low;
    high += a.high * b.high;
  }
  double sum() const {  // in fixed order
    double total = 0;
    for (int l = 0; l < V / 2; ++l) total += low[l];
    for (int l = 0; l < V / 2; ++l) total += high[l];
    return total;
  }
};
PIRATE_INLINE Doubles wide(vf v) {
  typedef float half __attribute__((vector_size(V * 2)));
  half parts[2];
  __builtin_memcpy(parts, &v, sizeof v);
  return {__builtin_convertvector(parts[0], Doubles::half), __builtin_convertvector(parts[1], Doubles::half)};
}

// Keeps a value that is used more than once in a register: gcc would read it from memory each time.
PIRATE_INLINE void hold(vf& v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#elif defined(__SSE2__)
  asm("" : "+x"(v));
#endif
}

// Puts indices into memory, to be read one by one: cheaper than taking a register apart.
PIRATE_INLINE void spill(vi v, std::int32_t (&at)[V]) {
  typedef vi alias __attribute__((may_alias));
  *reinterpret_cast<alias*>(at) = v;
  asm("" : "+m"(at));
}

// Sum of the lanes, in double precision and fixed order.
PIRATE_INLINE double sum(vf v) {
  double total = 0;
  for (int l = 0; l < V; ++l) total += v[l];
  return total;
}

#if defined(__AVX2__)
// a[l], b[l] = p[at[l]], p[at[l] + 1] for 8 lanes, by eight loads of 64 bits.
PIRATE_INLINE void pairs8(const float* p, const std::int32_t* at, __m256& a, __m256& b) {
  auto two = [&](int l, int m) {
    __m128 v = _mm_castpd_ps(_mm_load_sd(reinterpret_cast<const double*>(p + at[l])));
    return _mm_loadh_pi(v, reinterpret_cast<const __m64*>(p + at[m]));
  };
  __m256 x = _mm256_insertf128_ps(_mm256_castps128_ps256(two(0, 1)), two(4, 5), 1);
  __m256 y = _mm256_insertf128_ps(_mm256_castps128_ps256(two(2, 3)), two(6, 7), 1);
  a = _mm256_shuffle_ps(x, y, 0x88);
  b = _mm256_shuffle_ps(x, y, 0xdd);
}
#endif

// a[l], b[l] = p[at[l]], p[at[l] + 1].
PIRATE_INLINE void pairs(const float* p, const std::int32_t* at, vf& a, vf& b) {
#if defined(__AVX512F__)
  __m256 a0, a1, b0, b1;
  pairs8(p, at, a0, b0);
  pairs8(p, at + 8, a1, b1);
  a = (vf)_mm512_insertf32x8(_mm512_castps256_ps512(a0), a1, 1);
  b = (vf)_mm512_insertf32x8(_mm512_castps256_ps512(b0), b1, 1);
#elif defined(__AVX2__)
  __m256 x, y;
  pairs8(p, at, x, y);
  a = (vf)x;
  b = (vf)y;
#else
  for (int l = 0; l < V; ++l) {
    a[l] = p[at[l]];
    b[l] = p[at[l] + 1];
  }
#endif
}

// Runs body(task) for every task, see pool.hpp.
template <class Body>
inline void parallel(int tasks, Body body) {
  run(tasks, [](void* context, int task) { (*static_cast<Body*>(context))(task); }, &body);
}

}  // namespace pirate::PIRATE_VARIANT
