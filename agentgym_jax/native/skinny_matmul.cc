// Products of a few float32 rows with a large matrix in float32 or bfloat16: y = x @ E^T.
//
// A decode step reads every weight once, for at most a few dozen rows. This code keeps a piece of
// three rows of E in the L1 cache, as float32, multiplies it with all rows of x, and prefetches the
// next piece meanwhile. A general product would first copy the weights into another order.
//
// An element of y is a sum over K. Its order depends only on K, not on the number of rows, the row
// or the threads. The bits of a row therefore do not depend on other rows.

#include "tasks.h"
#include "vectors.h"

namespace {

using namespace agentgym;
namespace ffi = xla::ffi;

constexpr int64_t kDepth = 1024;           // elements of K; three rows of E of this length fit L1
constexpr int64_t kUnrolled = 8;           // vectors of K between two calls of Prefetch::Turn
constexpr int64_t kLineBytes = 64;         // size of a cache line
constexpr int64_t kMaxGroups = 64;         // maximum number of groups of kRows rows of x
constexpr int64_t kTaskBytes = 256 << 10;  // minimum size of the weights of a task

// Prefetches the next piece of E while the current piece is multiplied, a few lines at a time.
// It may read beyond the last piece, because a prefetch cannot fault.
template <typename T>
struct Prefetch {
  static constexpr int64_t kLine = kLineBytes / sizeof(T);

  const T* e[kColumns];
  int64_t depth, groups;
  int64_t at = 0, due = 0;

  inline void Turn() {
    for (due += kUnrolled * kLanes; due >= groups * kLine && at < depth; due -= groups * kLine) {
      for (int64_t i = 0; i < kColumns; ++i) __builtin_prefetch(e[i] + at, 0, 3);
      at += kLine;
    }
  }
};

// Weights of three rows of E, as float32.
template <typename T>
struct Piece;

template <>
struct Piece<float> {
  const float* rows[kColumns];

  inline void Take(const float* const e[kColumns], int64_t) { std::copy_n(e, kColumns, rows); }
};

template <>
struct Piece<BFloat16> {
  float copy[kColumns][kDepth];
  const float* rows[kColumns] = {copy[0], copy[1], copy[2]};

  inline void Take(const BFloat16* const e[kColumns], int64_t depth) {
    for (int64_t i = 0; i < kColumns; ++i)
      for (int64_t k = 0; k + kLanes <= depth; k += kLanes) Store(copy[i] + k, Load(e[i] + k));
  }
};

template <typename T>
struct Product {
  const float* x;  // [M, K]
  const T* e;      // [N, K]
  float* y;        // [M, N]
  int64_t M, K, N;

  int64_t groups() const { return (M + kRows - 1) / kRows; }

  // Computes columns n, n + 1 and n + 2 of y. Column end - 1 replaces columns that do not exist, and
  // the last row of x replaces rows that do not exist; their results are dropped.
  void Tile(int64_t n, int64_t end) const {
    Sums sums[kMaxGroups];
    Piece<T> piece;
    for (int64_t k0 = 0; k0 < K; k0 += kDepth) {
      const int64_t depth = std::min(kDepth, K - k0);
      const bool is_last = k0 + depth == K;
      Prefetch<T> ahead = {{}, is_last ? std::min(kDepth, K) : std::min(kDepth, K - k0 - depth), groups()};
      const T* rows[kColumns];
      for (int64_t i = 0; i < kColumns; ++i) {
        rows[i] = e + std::min(n + i, end - 1) * K + k0;
        ahead.e[i] = is_last ? e + (n + kColumns + i) * K : rows[i] + depth;
      }
      piece.Take(rows, depth);
      for (int64_t g = 0; g < groups(); ++g) {
        if (k0 == 0) sums[g].Clear();
        Add(g, piece.rows, k0, depth, sums[g], ahead);
      }
    }
    for (int64_t m = 0; m < M; ++m)
      for (int64_t i = 0; i < std::min(kColumns, end - n); ++i)
        y[m * N + n + i] = Total(sums[m / kRows].of[m % kRows][i]) + Rest(m, n + i);
  }

  void Add(int64_t g, const float* const rows[kColumns], int64_t k0, int64_t depth, Sums& total,
           Prefetch<T>& ahead) const {
    const float* in[kRows];
    for (int64_t r = 0; r < kRows; ++r) in[r] = x + std::min(g * kRows + r, M - 1) * K + k0;
    Sums sums = total;
    int64_t k = 0;
    for (; k + kUnrolled * kLanes <= depth; k += kUnrolled * kLanes) {
      for (int64_t u = 0; u < kUnrolled; ++u) sums.Add(in, rows, k + u * kLanes);
      ahead.Turn();
    }
    for (; k + kLanes <= depth; k += kLanes) sums.Add(in, rows, k);
    total = sums;
  }

  // Returns the sum over the last K % kLanes elements.
  float Rest(int64_t m, int64_t n) const {
    float sum = 0;
    for (int64_t k = K - K % kLanes; k < K; ++k) sum += x[m * K + k] * Widened(e[n * K + k]);
    return sum;
  }
};

template <typename T>
ffi::Error Multiply(ffi::ThreadPool& pool, const Product<T>& product) {
  if (product.groups() > kMaxGroups)
    return ffi::Error::InvalidArgument("skinny_matmul: too many rows");
  const int64_t threads = std::max<int64_t>(1, pool.num_threads());
  const int64_t bytes = product.K * product.N * sizeof(T);
  const int64_t wanted = std::min(8 * threads, std::max<int64_t>(1, bytes / kTaskBytes));
  const int64_t width = ((product.N + wanted - 1) / wanted + kColumns - 1) / kColumns * kColumns;
  RunTasks(pool, (product.N + width - 1) / width, [&product, width](int64_t i) {
    const int64_t end = std::min((i + 1) * width, product.N);
    for (int64_t n = i * width; n < end; n += kColumns) product.Tile(n, end);
  });
  return ffi::Error::Success();
}

// x [M, K], e [N, K], y [M, N].
template <typename T, ffi::DataType type>
ffi::Error Matmul(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x, ffi::Buffer<type> e,
                  ffi::ResultBuffer<ffi::F32> y) {
  const T* weights = static_cast<const T*>(e.untyped_data());
  return Multiply<T>(pool, {x.typed_data(), weights, y->typed_data(), x.dimensions()[0],
                            x.dimensions()[1], y->dimensions()[1]});
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(SkinnyMatmul, (Matmul<float, ffi::F32>));
XLA_FFI_DEFINE_HANDLER_SYMBOL(SkinnyMatmulBFloat16, (Matmul<BFloat16, ffi::BF16>));
