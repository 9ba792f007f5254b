// Attention of one new token per row to the cached keys and values of its row.
//
// A task computes one row and one key/value head for all queries that share this head. It loops
// over blocks of slots that fit the L1 cache, with a running softmax (arXiv:1805.02867). The cache
// is float32 or bfloat16; all sums are float32. The bits of a result depend only on its row's slots.

#include <cmath>
#include <vector>

#include "tasks.h"
#include "vectors.h"

namespace {

using namespace agentgym;
namespace ffi = xla::ffi;

constexpr int64_t kBlock = 64;  // slots
constexpr float kMasked = -1e30f;

// Mix computes weighted sums of values for kQueries queries and kWidth vectors at a time.
constexpr int64_t kQueries = 2, kWidth = 4;

template <typename T>
struct Head {
  const float* q;   // [G, H], scaled
  const T* keys;    // [slots, H]
  const T* values;  // [slots, H]
  float* out;       // [G, H]
  int64_t G, H, slots;
};

// Computes scores[g, s] for slots first .. first + count - 1. The rest of the block is masked.
template <typename T>
void Scores(const Head<T>& head, int64_t first, int64_t count, float* scores) {
  const int64_t H = head.H, even = H - H % kLanes;
  for (int64_t g = 0; g < head.G; g += kRows) {
    for (int64_t s = 0; s < count; s += kColumns) {
      const float* q[kRows];
      const T* k[kColumns];
      for (int64_t r = 0; r < kRows; ++r) q[r] = head.q + std::min(g + r, head.G - 1) * H;
      for (int64_t i = 0; i < kColumns; ++i)
        k[i] = head.keys + (first + std::min(s + i, count - 1)) * H;
      Sums sums;
      sums.Clear();
      for (int64_t h = 0; h < even; h += kLanes) sums.Add(q, k, h);
      for (int64_t r = 0; r < std::min(kRows, head.G - g); ++r)
        for (int64_t i = 0; i < std::min(kColumns, count - s); ++i) {
          float score = Total(sums.of[r][i]);
          for (int64_t h = even; h < H; ++h) score += q[r][h] * Widened(k[i][h]);
          scores[(g + r) * kBlock + s + i] = score;
        }
    }
  }
  for (int64_t g = 0; g < head.G; ++g)
    std::fill(scores + g * kBlock + count, scores + (g + 1) * kBlock, kMasked);
}

// Running softmax of one query.
struct Softmax {
  float max = kMasked, sum = 0;

  // Replaces the scores of a block by weights; returns the factor for the sums of earlier blocks.
  float Take(float* scores) {
    float new_max = max;
    for (int64_t s = 0; s < kBlock; ++s) new_max = std::max(new_max, scores[s]);
    const float scale = std::exp(max - new_max);
    Vector total = {};
    for (int64_t s = 0; s < kBlock; s += kLanes) {
      const Vector weights = Exp(Load(scores + s) - new_max);
      Store(scores + s, weights);
      total += weights;
    }
    sum = sum * scale + Total(total);
    max = new_max;
    return scale;
  }
};

// Computes out[g] = out[g] * scale[g] + weighted sum of the values of a block.
template <typename T>
void Mix(const Head<T>& head, int64_t first, int64_t count, const float* weights,
         const float* scales) {
  const int64_t H = head.H;
  const T* values = head.values + first * H;
  for (int64_t g = 0; g < head.G; g += kQueries) {
    const int64_t other = std::min(g + 1, head.G - 1);
    const float *w0 = weights + g * kBlock, *w1 = weights + other * kBlock;
    float *out0 = head.out + g * H, *out1 = head.out + other * H;
    int64_t h = 0;
    for (; h + kWidth * kLanes <= H; h += kWidth * kLanes) {
      Vector sums0[kWidth] = {}, sums1[kWidth] = {};
      for (int64_t s = 0; s < count; ++s)
        for (int64_t i = 0; i < kWidth; ++i) {
          const Vector v = LoadOnce(values + s * H + h + i * kLanes);
          sums0[i] += v * w0[s];
          sums1[i] += v * w1[s];
        }
      for (int64_t i = 0; i < kWidth; ++i) {
        float *y0 = out0 + h + i * kLanes, *y1 = out1 + h + i * kLanes;
        Store(y0, Load(y0) * scales[g] + sums0[i]);
        if (other != g) Store(y1, Load(y1) * scales[other] + sums1[i]);
      }
    }
    for (; h < H; ++h) {
      float sum0 = 0, sum1 = 0;
      for (int64_t s = 0; s < count; ++s) {
        sum0 += w0[s] * Widened(values[s * H + h]);
        sum1 += w1[s] * Widened(values[s * H + h]);
      }
      out0[h] = out0[h] * scales[g] + sum0;
      if (other != g) out1[h] = out1[h] * scales[other] + sum1;
    }
  }
}

template <typename T>
void Attend(const Head<T>& head) {
  std::vector<float> scores(head.G * kBlock), scales(head.G);
  std::vector<Softmax> softmax(head.G);
  std::fill(head.out, head.out + head.G * head.H, 0.0f);
  for (int64_t first = 0; first < head.slots; first += kBlock) {
    const int64_t count = std::min(kBlock, head.slots - first);
    Scores(head, first, count, scores.data());
    for (int64_t g = 0; g < head.G; ++g) scales[g] = softmax[g].Take(&scores[g * kBlock]);
    Mix(head, first, count, scores.data(), scales.data());
  }
  if (!head.slots) return;
  for (int64_t g = 0; g < head.G; ++g)
    for (int64_t h = 0; h < head.H; ++h) head.out[g * head.H + h] /= softmax[g].sum;
}

// q [n, N, H]; k, v [L, B, K, S, H]; out [n, N, H]. A position outside of [0, S) gives zeros.
template <typename T, ffi::DataType type>
ffi::Error Attention(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> q, ffi::Buffer<type> k,
                     ffi::Buffer<type> v, ffi::Buffer<ffi::S32> layer,
                     ffi::Buffer<ffi::S32> rows, ffi::Buffer<ffi::S32> positions,
                     ffi::ResultBuffer<ffi::F32> out) {
  const int64_t n = q.dimensions()[0], N = q.dimensions()[1], H = q.dimensions()[2];
  const int64_t L = k.dimensions()[0], B = k.dimensions()[1], K = k.dimensions()[2],
                S = k.dimensions()[3], l = layer.typed_data()[0], G = N / K;
  if (l < 0 || l >= L) return ffi::Error::InvalidArgument("decode_attention: no such layer");
  const T* keys = static_cast<const T*>(k.untyped_data());
  const T* values = static_cast<const T*>(v.untyped_data());
  RunTasks(pool, n * K, [&](int64_t task) {
    const int64_t i = task / K, head = task % K;
    const int64_t row = rows.typed_data()[i], position = positions.typed_data()[i];
    const bool is_live = 0 <= row && row < B && 0 <= position && position < S;
    const int64_t start = is_live ? ((l * B + row) * K + head) * S * H : 0;
    const int64_t first = (i * N + head * G) * H;
    Attend<T>({q.typed_data() + first, keys + start, values + start, out->typed_data() + first, G,
               H, is_live ? position + 1 : 0});
  });
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(DecodeAttention, (Attention<float, ffi::F32>));
XLA_FFI_DEFINE_HANDLER_SYMBOL(DecodeAttentionBFloat16, (Attention<BFloat16, ffi::U16>));
