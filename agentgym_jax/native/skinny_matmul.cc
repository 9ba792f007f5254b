// Products of a few rows with a large float32 matrix: y = x @ W and y = x @ E^T.
//
// One step of decoding reads every weight once, for at most some dozen rows. A general product
// first copies the weights into the order it likes; here they are read where they are, and the
// loop over the rows runs while a piece of them is in the cache.
//
// An element of y is a sum over K whose order depends on K alone: not on the number of rows, not
// on which one it is, not on the threads. A row has the same bits whatever is computed beside it.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

#ifdef __AVX512F__
constexpr int64_t kLanes = 16;
#else
constexpr int64_t kLanes = 8;
#endif
constexpr int64_t kRows = 4;                   // of x at a time
constexpr int64_t kTile = 3 * kLanes;          // columns of W at a time: 12 sums in registers
constexpr int64_t kDepth = 64;                 // of K in a tile of W, which stays in L1
constexpr int64_t kLongDepth = 2048;           // of K in a piece of E
constexpr int64_t kPieceBytes = 128 << 10;     // of E, which stays in L2
constexpr int64_t kTaskBytes = 256 << 10;      // of weights: less is not worth another thread

typedef float Vector __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));

inline Vector Load(const float* p) { return *reinterpret_cast<const Vector*>(p); }
inline void Store(float* p, Vector v) { *reinterpret_cast<Vector*>(p) = v; }

// Loads to a register; GCC alone would read the same memory again for each product.
inline Vector LoadOnce(const float* p) {
  Vector v = Load(p);
#if defined(__x86_64__) && defined(__AVX__)
  asm("" : "+x"(v));
#endif
  return v;
}

struct Triple {
  Vector a = {}, b = {}, c = {};

  template <typename Factor>
  inline void Add(Vector wa, Vector wb, Vector wc, Factor x) {
    a += wa * x;
    b += wb * x;
    c += wc * x;
  }
  inline void PutTo(float* y, bool is_added) const {
    Store(y, is_added ? Load(y) + a : a);
    Store(y + kLanes, is_added ? Load(y + kLanes) + b : b);
    Store(y + 2 * kLanes, is_added ? Load(y + 2 * kLanes) + c : c);
  }
};

// Weights are W [K, N], or E [N, K].
struct Product {
  const float* x;
  const float* weights;
  float* y;
  int64_t M, K, N;

  int64_t groups() const { return (M + kRows - 1) / kRows; }
  // Row m of x; the last one in place of those that are too many, to be dropped afterwards.
  const float* row(int64_t m) const { return x + std::min(m, M - 1) * K; }
};

// Brings the weights that are needed next into the L2 cache, kTile of them with every so many
// turns of an inner loop, row by row. It may run past their end: a prefetch cannot fault.
struct Ahead {
  const float* at;
  int64_t width, stride;  // floats of a row to fetch, and to the next row
  int64_t every;          // turns
  int64_t column = 0, wait = 0;

  inline void Turn() {
    if (--wait > 0) return;
    wait = every;
    __builtin_prefetch(at + column, 0, 2);
    __builtin_prefetch(at + column + kTile - 1, 0, 2);
    column += kTile;
    if (column >= width) {
      column = 0;
      at += stride;
    }
  }
};

// y[m : m + kRows, n : n + width] (+)= x[.., k0 : k0 + depth] @ w[depth, kTile].
void TileOfColumns(const Product& p, int64_t m, int64_t n, int64_t width, int64_t k0,
                   int64_t depth, const float* w, int64_t w_stride, Ahead& shared) {
  const float *x0 = p.row(m) + k0, *x1 = p.row(m + 1) + k0, *x2 = p.row(m + 2) + k0,
              *x3 = p.row(m + 3) + k0;
  Triple s0, s1, s2, s3;
  Ahead ahead = shared;
  for (int64_t k = 0; k < depth; ++k, w += w_stride) {
    ahead.Turn();
    const Vector a = LoadOnce(w), b = LoadOnce(w + kLanes), c = LoadOnce(w + 2 * kLanes);
    s0.Add(a, b, c, x0[k]);
    s1.Add(a, b, c, x1[k]);
    s2.Add(a, b, c, x2[k]);
    s3.Add(a, b, c, x3[k]);
  }
  shared = ahead;
  const auto put = [&](int64_t row, const Triple& sums) {
    if (row >= p.M) return;
    float* y = p.y + row * p.N + n;
    if (width == kTile) {
      sums.PutTo(y, k0 > 0);
    } else {
      float all[kTile];
      sums.PutTo(all, false);
      for (int64_t i = 0; i < width; ++i) y[i] = k0 > 0 ? y[i] + all[i] : all[i];
    }
  };
  put(m, s0);
  put(m + 1, s1);
  put(m + 2, s2);
  put(m + 3, s3);
}

void CopyTile(const float* w, int64_t stride, int64_t depth, int64_t width, float* copy) {
  for (int64_t k = 0; k < depth; ++k, w += stride, copy += kTile) {
    if (width == kTile) {
      std::memcpy(copy, w, kTile * sizeof(float));
    } else {
      std::memcpy(copy, w, width * sizeof(float));
    }
  }
}

void Columns(const Product& p, int64_t begin, int64_t end) {
  alignas(64) float copy[kDepth * kTile] = {};
  for (int64_t k0 = 0; k0 < p.K; k0 += kDepth) {
    const int64_t depth = std::min(kDepth, p.K - k0);
    for (int64_t n = begin; n < end; n += kTile) {
      const int64_t width = std::min(kTile, end - n);
      const float* w = p.weights + k0 * p.N + n;
      const float* next = n + kTile < end ? w + kTile : p.weights + (k0 + kDepth) * p.N + begin;
      int64_t stride = p.N;
      // Rows of W may collide in L1, which costs more than a copy if they are read often.
      if (p.groups() > 2 || width < kTile) {
        CopyTile(w, stride, depth, width, copy);
        w = copy;
        stride = kTile;
      }
      Ahead ahead = {next, kTile, p.N, p.groups()};
      for (int64_t m = 0; m < p.M; m += kRows)
        TileOfColumns(p, m, n, width, k0, depth, w, stride, ahead);
    }
  }
}

inline float Total(Vector v) {
  float lanes[kLanes];
  std::memcpy(lanes, &v, sizeof(v));
  for (int64_t half = kLanes / 2; half; half /= 2)
    for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

// y[m : m + kRows, n : n + 3] (+)= x[.., k0 : k0 + depth] @ E[.., k0 : k0 + depth]^T.
void TileOfRows(const Product& p, int64_t m, int64_t n, int64_t k0, int64_t depth,
                int64_t end, Ahead& shared) {
  const float *x0 = p.row(m) + k0, *x1 = p.row(m + 1) + k0, *x2 = p.row(m + 2) + k0,
              *x3 = p.row(m + 3) + k0;
  const float* e[3];
  for (int64_t i = 0; i < 3; ++i) e[i] = p.weights + std::min(n + i, end - 1) * p.K + k0;
  Triple s0, s1, s2, s3;
  Ahead ahead = shared;
  int64_t k = 0;
  for (; k + kLanes <= depth; k += kLanes) {
    ahead.Turn();
    const Vector a = LoadOnce(e[0] + k), b = LoadOnce(e[1] + k), c = LoadOnce(e[2] + k);
    s0.Add(a, b, c, LoadOnce(x0 + k));
    s1.Add(a, b, c, LoadOnce(x1 + k));
    s2.Add(a, b, c, LoadOnce(x2 + k));
    s3.Add(a, b, c, LoadOnce(x3 + k));
  }
  shared = ahead;
  const Triple sums[kRows] = {s0, s1, s2, s3};
  for (int64_t r = 0; r < std::min(kRows, p.M - m); ++r) {
    float totals[3] = {Total(sums[r].a), Total(sums[r].b), Total(sums[r].c)};
    const float* x = p.row(m + r) + k0;
    for (int64_t i = 0; i < std::min<int64_t>(3, end - n); ++i) {
      for (int64_t j = k; j < depth; ++j) totals[i] += x[j] * e[i][j];
      float& y = p.y[(m + r) * p.N + n + i];
      y = k0 == 0 ? totals[i] : y + totals[i];
    }
  }
}

void Rows(const Product& p, int64_t begin, int64_t end) {
  for (int64_t k0 = 0; k0 < p.K; k0 += kLongDepth) {
    const int64_t depth = std::min(kLongDepth, p.K - k0);
    const int64_t piece = std::max<int64_t>(3, kPieceBytes / 4 / depth / 3 * 3);
    for (int64_t n0 = begin; n0 < end; n0 += piece) {
      const int64_t n1 = std::min(end, n0 + piece);
      Ahead ahead = {p.weights + n1 * p.K + k0, depth, p.K, p.groups()};
      for (int64_t m = 0; m < p.M; m += kRows)
        for (int64_t n = n0; n < n1; n += 3) TileOfRows(p, m, n, k0, depth, n1, ahead);
    }
  }
}

// Columns of y in tasks that threads take one after the other. The caller takes them too and
// waits only for those that another thread has begun, so a pool without a free thread is no
// deadlock; a thread that comes when none is left touches nothing but this object.
struct Tasks {
  std::atomic<int64_t> next{0}, done{0};
  int64_t count, width;
  Product product;
  void (*run)(const Product&, int64_t, int64_t);

  void Work() {
    for (int64_t i; (i = next.fetch_add(1)) < count;) {
      run(product, i * width, std::min((i + 1) * width, product.N));
      done.fetch_add(1, std::memory_order_release);
    }
  }
};

template <void (*kRun)(const Product&, int64_t, int64_t)>
ffi::Error Matmul(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::F32> weights,
                  ffi::ResultBuffer<ffi::F32> y) {
  const int64_t M = x.dimensions()[0], K = x.dimensions()[1], N = y->dimensions()[1];
  const int64_t threads = std::max<int64_t>(1, pool.num_threads());
  const int64_t wanted = std::min(4 * threads, std::max<int64_t>(1, K * N * 4 / kTaskBytes));
  auto tasks = std::make_shared<Tasks>();
  tasks->product = {x.typed_data(), weights.typed_data(), y->typed_data(), M, K, N};
  tasks->run = kRun;
  tasks->width = ((N + wanted - 1) / wanted + kTile - 1) / kTile * kTile;
  tasks->count = (N + tasks->width - 1) / tasks->width;
  const int64_t helpers = std::min(threads, tasks->count) - 1;
  for (int64_t i = 0; i < helpers; ++i) pool.Schedule([tasks] { tasks->Work(); });
  tasks->Work();
  while (tasks->done.load(std::memory_order_acquire) < tasks->count) std::this_thread::yield();
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(SkinnyMatmul, Matmul<Columns>,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(SkinnyMatmulTransposed, Matmul<Rows>,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());
