#include "lockstep/backend/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "lockstep/backend/cpu/draws.h"
#include "lockstep/backend/cpu/f32_kernels.h"
#include "lockstep/backend/cpu/f32_runs.h"
#include "lockstep/backend/cpu/f32_scratch.h"
#include "lockstep/backend/cpu/families.h"
#include "lockstep/backend/cpu/transpose.h"
#include "lockstep/backend/cpu/vector_math.h"
#include "lockstep/backend/cpu/vectorize.h"
#include "lockstep/backend/random.h"

namespace lockstep {
namespace cpu {
namespace {

using kernels::Attention;
using kernels::AttentionBackward;

// Scores lie [key][query], so that a vector holds one key's scores of several queries, and nothing is added up across a
// vector. A panel is as many queries as a tile of the kernels has columns.
constexpr std::int64_t kPanel = kTileColumns;
// Queries and keys are computed in blocks of as many.
constexpr std::int64_t kQueries = kTerms, kKeys = kTerms;
// From a key to the next in a block of scores: some more than its queries, to spread over the first-level cache's sets.
constexpr std::int64_t kScoreRow = kQueries + kBlock;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kLog2E = 1.44269504088896341;

// Offsets 0, row, 2 row, ... of a block's rows.
using Rows = std::array<std::int64_t, kTerms>;
Rows rows_of(std::int64_t row) {
  Rows rows;
  for (std::size_t r = 0; r < rows.size(); ++r) rows[r] = static_cast<std::int64_t>(r) * row;
  return rows;
}
using Pairs = std::array<PixelPair, kTerms>;
Pairs pairs_of(std::int64_t x, std::int64_t y) {
  Pairs pairs;
  for (std::size_t r = 0; r < pairs.size(); ++r) {
    pairs[r] = {static_cast<std::int64_t>(r) * x, static_cast<std::int64_t>(r) * y};
  }
  return pairs;
}

// to[t * kPanel + i] = factor * from[i * row + t] for `count` rows of a panel; the others are 0.
void pack_panel(const float* from, std::int64_t row, std::int64_t count, std::int64_t terms, float factor, float* to) {
  count = std::min(count, kPanel);
  if (count < kPanel) std::fill_n(to, terms * kPanel, 0.f);
  transpose(from, row, count, terms, to, kPanel);
  if (factor != 1) vectorized([&] { vector_loop(0, terms * kPanel, [&](std::int64_t n) { to[n] *= factor; }); });
}

// The reverse, times a factor of each row.
void unpack_panel(float* from, std::int64_t terms, const float* factors, std::int64_t count, float* to,
                  std::int64_t row) {
  if (factors) {
    vectorized([&] {
      for (std::int64_t t = 0; t < terms; ++t) {
        vector_loop(0, kPanel, [&](std::int64_t i) { from[t * kPanel + i] *= factors[i]; });
      }
    });
  }
  transpose(from, kPanel, terms, std::min(count, kPanel), to, row);
}

// Packs `count` rows of a block as the weights of row_product, by tiles of 32 of their columns; 0 beyond rows and
// columns. `rows`: of a tile.
void pack_columns(const float* from, std::int64_t count, std::int64_t columns, std::int64_t rows, float* to) {
  for (std::int64_t column = 0; column < columns; column += kTileColumns, to += rows * kTileColumns) {
    const std::int64_t width = std::min(kTileColumns, columns - column);
    for (std::int64_t r = 0; r < rows; ++r) {
      float* const out = to + r * kTileColumns;
      const std::int64_t copied = r < count ? width : 0;
      std::copy_n(from + r * columns + column, copied, out);
      std::fill(out + copied, out + kTileColumns, 0.f);
    }
  }
}

// What forward and backward share: the sizes, and the scores of a panel.
class Scores {
 public:
  Scores(const AttentionRule& rule, const View& q, const View& k, const View& v)
      : rule_(rule), q_(q.as<float>()), k_(k.as<float>()), heads_(q.shape[0]), queries_(q.shape[1]), keys_(k.shape[1]),
        depth_(q.shape[2]), width_(v.shape[2]), shared_(heads_ / std::max<std::int64_t>(k.shape[0], 1)),
        key_(rule.keep < 1 ? current_key(rule.key, rule.key_at) : RandomKey{}), key_rows_(rows_of(depth_)),
        value_rows_(rows_of(width_)), packed_rows_(rows_of(kPanel)), score_rows_(rows_of(kScoreRow)),
        threshold_(static_cast<std::uint32_t>(std::ceil(rule.keep * 0x1p24))) {}

 protected:
  bool drops() const { return rule_.keep < 1; }
  const float* query(std::int64_t head, std::int64_t i) const { return q_ + (head * queries_ + i) * depth_; }
  const float* key(std::int64_t head, std::int64_t j) const { return k_ + (head / shared_ * keys_ + j) * depth_; }
  // Number of `count` keys from `first` on that some query of the panel from `query` on sees.
  std::int64_t seen(std::int64_t query, std::int64_t first, std::int64_t count) const {
    return rule_.causal ? std::clamp<std::int64_t>(rule_.position + query + kPanel - first, 0, count) : count;
  }

  // s[key][query] = the scores of a panel in units of ln 2, with q packed and scaled. `rows`: the keys' offsets in s.
  void scores(std::int64_t head, std::int64_t query, std::int64_t first, std::int64_t count, const float* q, float* s,
              const Rows& rows) const {
    multiply_runs({.x = key(head, first),
                   .x_rows = key_rows_.data(),
                   .y = s,
                   .y_rows = rows.data(),
                   .rows = count,
                   .y_block = kBlock,
                   .w = q,
                   .blocks = 2},
                  depth_);
    const std::int64_t lanes = std::min(kPanel, queries_ - query);
    if (rule_.mask) add_mask(head, query, first, count, lanes, s, rows);
    if (!rule_.causal) return;
    const std::int64_t position = rule_.position + query;
    for (std::int64_t j = std::max<std::int64_t>(0, position - first + 1); j < count; ++j) {
      std::fill_n(s + rows[static_cast<std::size_t>(j)], std::min(first + j - position, kPanel), -kInfinity);
    }
  }

  // drawn[key][query] = the draw that decides whether dropout keeps the weight.
  void draw_kept(std::int64_t head, std::int64_t query, std::int64_t first, std::int64_t count,
                 std::uint32_t* drawn) const {
    const std::int64_t at = (head * queries_ + query) * keys_ + first;
    if (keys_ % 4 == 0) {
      // Four keys of a query are a block of draws.
      static_assert(kPanel == 32);
      for (std::int64_t j = 0; j < count; j += 4) {
        draw_across(key_, static_cast<std::uint64_t>((at + j) / 4), static_cast<std::uint64_t>(keys_ / 4),
                    drawn + j * kPanel);
      }
      return;
    }
    std::array<std::uint32_t, kKeys + 2 * kDrawsAtOnce> row;
    for (std::int64_t i = 0; i < kPanel; ++i) {
      const std::int64_t own = at + i * keys_, skipped = own % 4;
      draw(key_, static_cast<std::uint64_t>(own / 4), skipped + count, row.data());
      for (std::int64_t j = 0; j < count; ++j) drawn[j * kPanel + i] = row[static_cast<std::size_t>(skipped + j)];
    }
  }
  // random_uniform() < keep, in integers.
  float kept(std::uint32_t draw, float x) const { return draw >> 8 < threshold_ ? x : 0.f; }

  const AttentionRule& rule_;
  const float *q_, *k_;
  std::int64_t heads_, queries_, keys_;
  std::int64_t depth_, width_;  // of a query and a key; of a value
  std::int64_t shared_;         // heads of queries for each head of keys
  RandomKey key_;
  Rows key_rows_, value_rows_, packed_rows_, score_rows_;

 private:
  void add_mask(std::int64_t head, std::int64_t query, std::int64_t first, std::int64_t count, std::int64_t lanes,
                float* s, const Rows& rows) const {
    const Shape& shape = rule_.mask.shape;
    const std::int64_t across = shape[1] > 1 ? shape[2] : 0, along = shape[2] > 1 ? 1 : 0;
    const float* const mask = rule_.mask.as<float>() + head / rule_.heads_of_mask % shape[0] * shape[1] * shape[2] +
                              query * across + first * along;
    for (std::int64_t j = 0; j < count; ++j) {
      float* const row = s + rows[static_cast<std::size_t>(j)];
      for (std::int64_t i = 0; i < lanes; ++i) {
        row[i] += static_cast<float>(static_cast<double>(mask[i * across + j * along]) * kLog2E);
      }
    }
  }

  std::uint32_t threshold_;
};

class Forward : Scores {
 public:
  explicit Forward(const Attention& call)
      : Scores(call.rule, call.q, call.k, call.v), v_(call.v.as<float>()), y_(call.y.as<float>()),
        stats_(call.stats.as<float>()), value_pairs_(pairs_of(width_, kPanel)) {}

  void run(KernelContext& context) const {
    ScratchParts parts;
    const std::int64_t size = kQueries * (depth_ + width_ + 2) + kKeys * kPanel;
    const std::int64_t at = parts.add(round_up(size) * context.threads), blocks = ceil_div(queries_, kQueries);
    float* const scratch = parts.take(context) + at;
    for_each_thread(context, heads_ * blocks, [&](std::int64_t thread, std::int64_t begin, std::int64_t end) {
      for (std::int64_t unit = begin; unit < end; ++unit)
        block(unit / blocks, unit % blocks * kQueries, scratch + thread * round_up(size));
    });
  }

 private:
  // The queries of a block, which see all keys before the next block's queries do.
  void block(std::int64_t head, std::int64_t begin, float* scratch) const {
    const std::int64_t end = std::min(queries_, begin + kQueries);
    float *const q = scratch, *const y = q + kQueries * depth_, *const s = y + kQueries * width_,
                 *const largest = s + kKeys * kPanel, *const sum = largest + kQueries;
    const auto scale = static_cast<float>(rule_.scale * kLog2E);
    for (std::int64_t i = begin; i < end; i += kPanel)
      pack_panel(query(head, i), depth_, end - i, depth_, scale, q + (i - begin) * depth_);
    std::fill_n(largest, kQueries, -kInfinity);
    std::fill_n(sum, kQueries, 0.f);
    const std::int64_t keys = rule_.causal ? std::min(keys_, rule_.position + end) : keys_;
    for (std::int64_t first = 0; first == 0 || first < keys; first += kKeys) {
      for (std::int64_t i = begin; i < end; i += kPanel) {
        const std::int64_t count = seen(i, first, std::min(kKeys, keys - first)), p = i - begin;
        float* const sums = y + p * width_;
        if (count == 0) {
          if (first == 0) std::fill_n(sums, kPanel * width_, 0.f);
          continue;
        }
        scores(head, i, first, count, q + p * depth_, s, packed_rows_);
        std::uint32_t drawn[kKeys * kPanel];
        if (drops()) draw_kept(head, i, first, count, drawn);
        float factor[kPanel];
        const bool rescales = exponentials(count, s, drops() ? drawn : nullptr, largest + p, sum + p, factor);
        if (first > 0 && rescales) scale_rows(sums, factor);
        f32_kernels().pixel_product({.x = v_ + (head / shared_ * keys_ + first) * width_,
                                     .row_count = width_,
                                     .y = s,
                                     .y_block = kBlock,
                                     .blocks = 2,
                                     .pixels = value_pairs_.data(),
                                     .pixel_count = count,
                                     .d = sums,
                                     .d_row = kPanel,
                                     .d_block = kBlock,
                                     .accumulate = first > 0});
      }
    }
    for (std::int64_t i = begin; i < end; i += kPanel) {
      const std::int64_t p = i - begin, lanes = std::min(kPanel, end - i), at = head * queries_ + i;
      float inverse[kPanel], factor[kPanel];
      for (std::int64_t n = 0; n < kPanel; ++n) {
        inverse[n] = 1 / sum[p + n];
        factor[n] = drops() ? inverse[n] * static_cast<float>(1 / rule_.keep) : inverse[n];
      }
      unpack_panel(y + p * width_, width_, factor, lanes, y_ + at * width_, width_);
      std::copy_n(largest + p, lanes, stats_ + at);
      std::copy_n(inverse, lanes, stats_ + heads_ * queries_ + at);
    }
  }

  // Turns scores into exponentials below 1, and updates the largest score and the sum of each query of the panel.
  // factor[i]: what earlier sums of query i are multiplied by. Returns whether one of them is not 1.
  bool exponentials(std::int64_t count, float* s, const std::uint32_t* drawn, float* largest, float* sum,
                    float* factor) const {
    bool rescales = false;
    vectorized([&] {
      float most[kPanel], total[kPanel];
      for (std::int64_t i = 0; i < kPanel; ++i) most[i] = largest[i], total[i] = 0;
      for (std::int64_t j = 0; j < count; ++j) {
        for (std::int64_t i = 0; i < kPanel; ++i) most[i] = s[j * kPanel + i] > most[i] ? s[j * kPanel + i] : most[i];
      }
      for (std::int64_t i = 0; i < kPanel; ++i) {
        // Queries that have seen no key yet have -infinity.
        const float origin = most[i] > -kInfinity ? most[i] : 0.f;
        factor[i] = exp2_of_negative(largest[i] - origin);
        largest[i] = most[i];
        most[i] = origin;
      }
      for (std::int64_t j = 0; j < count; ++j) {
        float* const row = s + j * kPanel;
        for (std::int64_t i = 0; i < kPanel; ++i) {
          const float e = exp2_of_negative(row[i] - most[i]);
          total[i] += e;
          row[i] = e;
        }
      }
      if (drawn) {
        for (std::int64_t n = 0; n < count * kPanel; ++n) s[n] = kept(drawn[n], s[n]);
      }
      for (std::int64_t i = 0; i < kPanel; ++i) {
        sum[i] = sum[i] * factor[i] + total[i];
        rescales |= factor[i] != 1;
      }
    });
    return rescales;
  }

  void scale_rows(float* sums, const float* factor) const {
    vectorized([&] {
      for (std::int64_t d = 0; d < width_; ++d) {
        for (std::int64_t i = 0; i < kPanel; ++i) sums[d * kPanel + i] *= factor[i];
      }
    });
  }

  const float* v_;
  float *y_, *stats_;
  Pairs value_pairs_;
};

class Backward : Scores {
 public:
  explicit Backward(const AttentionBackward& call)
      : Scores(call.rule, call.q, call.k, call.v), v_(call.v.as<float>()), y_(call.y.as<float>()),
        stats_(call.stats.as<float>()), dy_(call.dy.as<float>()), dq_(call.dq.as<float>()), dk_(call.dk.as<float>()),
        dv_(call.dv.as<float>()), key_pairs_(pairs_of(depth_, kScoreRow)) {}

  void run(KernelContext& context) const {
    const std::int64_t groups = heads_ / shared_, size = Work::size(*this);
    ScratchParts parts;
    const std::int64_t at = parts.add(size * context.threads);
    float* const scratch = parts.take(context) + at;
    const std::int64_t query_blocks = ceil_div(queries_, kQueries), key_blocks = ceil_div(keys_, kKeys);
    clear_unseen();
    if (groups >= context.threads) {
      return for_each_thread(context, groups, [&](std::int64_t thread, std::int64_t begin, std::int64_t end) {
        Work work(*this, scratch + thread * size);
        for (std::int64_t group = begin; group < end; ++group) {
          for (std::int64_t b = 0; b < query_blocks * shared_; ++b) {
            const std::int64_t head = group * shared_ + b / query_blocks, query = b % query_blocks * kQueries;
            begin_queries(head, query, work);
            for (std::int64_t first = 0; first < keys_; first += kKeys) {
              if (!sees(query, first)) break;
              weights(first, work);
              add_to_queries(first, work);
              add_to_keys(first, work);
            }
            end_queries(work);
          }
        }
      });
    }
    // Threads share the blocks of a head. Gradients of keys and values compute the weights a second time.
    for_each_thread(context, heads_ * query_blocks, [&](std::int64_t thread, std::int64_t begin, std::int64_t end) {
      Work work(*this, scratch + thread * size);
      for (std::int64_t unit = begin; unit < end; ++unit) {
        const std::int64_t query = unit % query_blocks * kQueries;
        begin_queries(unit / query_blocks, query, work);
        for (std::int64_t first = 0; first < keys_ && sees(query, first); first += kKeys) {
          weights(first, work);
          add_to_queries(first, work);
        }
        end_queries(work);
      }
    });
    for_each_thread(context, groups * key_blocks, [&](std::int64_t thread, std::int64_t begin, std::int64_t end) {
      Work work(*this, scratch + thread * size);
      for (std::int64_t unit = begin; unit < end; ++unit) {
        const std::int64_t group = unit / key_blocks, first = unit % key_blocks * kKeys;
        for (std::int64_t b = 0; b < query_blocks * shared_; ++b) {
          const std::int64_t query = b % query_blocks * kQueries;
          if (!sees(query, first)) continue;
          begin_queries(group * shared_ + b / query_blocks, query, work);
          weights(first, work);
          add_to_keys(first, work);
        }
      }
    });
  }

 private:
  // A block of queries, and what a thread computes with it.
  struct Work {
    static std::int64_t size(const Backward& b) {
      return kQueries * (b.depth_ + b.width_ + std::max(b.depth_, b.width_) + tile_columns(b.depth_) +
                         tile_columns(b.width_) + 3) +
             2 * kKeys * kScoreRow + kKeys * kPanel;
    }
    static std::int64_t tile_columns(std::int64_t n) { return ceil_div(n, kTileColumns) * kTileColumns; }
    Work(const Backward& b, float* scratch) {
      const auto take = [&](std::int64_t count) { return std::exchange(scratch, scratch + count); };
      q = take(kQueries * b.depth_), dy = take(kQueries * b.width_);
      dq = take(kQueries * std::max(b.depth_, b.width_));
      q_columns = take(kQueries * tile_columns(b.depth_)), dy_columns = take(kQueries * tile_columns(b.width_));
      p = take(kKeys * kScoreRow), ds = take(kKeys * kScoreRow), rows = take(kKeys * kPanel);
      largest = take(kQueries), inverse = take(kQueries), delta = take(kQueries);
    }
    std::int64_t head = 0, query = 0, count = 0;
    float *q, *dy, *dq;             // panels
    float *q_columns, *dy_columns;  // tiles of columns; see pack_columns
    float *p, *ds;                  // [key][query]: weights after dropout, gradients of scores
    float* rows;                    // sums of rows that cannot be written in place
    float *largest, *inverse, *delta;
  };

  bool sees(std::int64_t query, std::int64_t first) const { return !rule_.causal || first < query + kQueries; }

  void begin_queries(std::int64_t head, std::int64_t query, Work& w) const {
    w.head = head, w.query = query, w.count = std::min(kQueries, queries_ - query);
    const auto scale = static_cast<float>(rule_.scale * kLog2E), factor = static_cast<float>(rule_.scale / rule_.keep);
    std::fill_n(w.largest, kQueries, 0.f), std::fill_n(w.inverse, kQueries, 0.f);
    const std::int64_t at = head * queries_ + query;
    std::copy_n(stats_ + at, w.count, w.largest), std::copy_n(stats_ + heads_ * queries_ + at, w.count, w.inverse);
    for (std::int64_t i = 0; i < w.count; i += kPanel) {
      const std::int64_t count = w.count - i;
      pack_panel(this->query(head, query + i), depth_, count, depth_, scale, w.q + i * depth_);
      float *const dy = w.dy + i * width_, *const y = w.dq;  // dq is written later
      pack_panel(dy_ + (at + i) * width_, width_, count, width_, factor, dy);
      pack_panel(y_ + (at + i) * width_, width_, count, width_, static_cast<float>(rule_.keep), y);
      // The sum of dy y is that of the weights times their gradients.
      vectorized([&] {
        float sum[kPanel] = {};
        for (std::int64_t d = 0; d < width_; ++d) {
          for (std::int64_t n = 0; n < kPanel; ++n) sum[n] += dy[d * kPanel + n] * y[d * kPanel + n];
        }
        for (std::int64_t n = 0; n < kPanel; ++n) w.delta[i + n] = sum[n];
      });
    }
    const std::int64_t rows = round_up(w.count);
    pack_columns(q_ + at * depth_, w.count, depth_, rows, w.q_columns);
    pack_columns(dy_ + at * width_, w.count, width_, rows, w.dy_columns);
  }

  // The weights of the block's queries for the keys from `first` on, and the gradients of their scores.
  void weights(std::int64_t first, Work& w) const {
    const std::int64_t keys = std::min(kKeys, keys_ - first);
    for (std::int64_t i = 0; i < w.count; i += kPanel) {
      const std::int64_t count = seen(w.query + i, first, keys);
      float *const p = w.p + i, *const ds = w.ds + i;
      if (count > 0) {
        scores(w.head, w.query + i, first, count, w.q + i * depth_, p, score_rows_);
        multiply_runs({.x = v_ + (w.head / shared_ * keys_ + first) * width_,
                       .x_rows = value_rows_.data(),
                       .y = ds,
                       .y_rows = score_rows_.data(),
                       .rows = count,
                       .y_block = kBlock,
                       .w = w.dy + i * width_,
                       .blocks = 2},
                      width_);
        std::uint32_t drawn[kKeys * kPanel];
        if (drops()) draw_kept(w.head, w.query + i, first, count, drawn);
        gradients(count, p, ds, drops() ? drawn : nullptr, w.largest + i, w.inverse + i, w.delta + i);
      }
      // Groups of keys that only later panels see read whole rows.
      for (std::int64_t j = count; j < keys; ++j) {
        std::fill_n(p + j * kScoreRow, kPanel, 0.f);
        std::fill_n(ds + j * kScoreRow, kPanel, 0.f);
      }
    }
  }

  void gradients(std::int64_t count, float* p, float* ds, const std::uint32_t* drawn, const float* largest,
                 const float* inverse, const float* delta) const {
    const auto scale = static_cast<float>(1 / rule_.keep);
    vectorized([&] {
      for (std::int64_t j = 0; j < count; ++j) {
        float *const weight = p + j * kScoreRow, *const gradient = ds + j * kScoreRow;
        if (drawn) {
          const std::uint32_t* const draws = drawn + j * kPanel;
          for (std::int64_t i = 0; i < kPanel; ++i) {
            const float e = exp2_of_negative(weight[i] - largest[i]) * inverse[i];
            gradient[i] = e * (kept(draws[i], gradient[i]) - delta[i]);
            weight[i] = kept(draws[i], e * scale);
          }
        } else {
          for (std::int64_t i = 0; i < kPanel; ++i) {
            const float e = exp2_of_negative(weight[i] - largest[i]) * inverse[i];
            gradient[i] = e * (gradient[i] - delta[i]);
            weight[i] = e;
          }
        }
      }
    });
  }

  void add_to_queries(std::int64_t first, Work& w) const {
    const std::int64_t keys = std::min(kKeys, keys_ - first);
    for (std::int64_t i = 0; i < w.count; i += kPanel) {
      const std::int64_t count = seen(w.query + i, first, keys);
      if (count == 0) continue;
      f32_kernels().pixel_product({.x = key(w.head, first),
                                   .row_count = depth_,
                                   .y = w.ds + i,
                                   .y_block = kBlock,
                                   .blocks = 2,
                                   .pixels = key_pairs_.data(),
                                   .pixel_count = count,
                                   .d = w.dq + i * depth_,
                                   .d_row = kPanel,
                                   .d_block = kBlock,
                                   .accumulate = first > 0});
    }
  }
  void end_queries(Work& w) const {
    for (std::int64_t i = 0; i < w.count; i += kPanel) {
      unpack_panel(w.dq + i * depth_, depth_, nullptr, w.count - i, dq_ + (w.head * queries_ + w.query + i) * depth_,
                   depth_);
    }
  }

  // No block of queries sees the keys after the last one.
  void clear_unseen() const {
    const std::int64_t seen = rule_.causal ? std::min(keys_, ceil_div(queries_, kQueries) * kQueries) : keys_;
    for (std::int64_t group = 0; group < heads_ / shared_; ++group) {
      std::fill_n(dk_ + (group * keys_ + seen) * depth_, (keys_ - seen) * depth_, 0.f);
      std::fill_n(dv_ + (group * keys_ + seen) * width_, (keys_ - seen) * width_, 0.f);
    }
  }

  void add_to_keys(std::int64_t first, Work& w) const {
    const std::int64_t keys = std::min(kKeys, keys_ - first);
    // The first queries that see these keys.
    const bool fresh = w.head % shared_ == 0 && w.query == (rule_.causal ? first / kQueries * kQueries : 0);
    // Some queries of the block see only the first of these keys.
    const std::int64_t step = rule_.causal && w.query < first + keys ? kPanel : keys;
    for (std::int64_t k = 0; k < keys; k += step) {
      const std::int64_t count = std::min(step, keys - k),
                         skipped = step == keys ? 0 : std::max<std::int64_t>(0, first + k - w.query);
      add_rows(w.ds, w.q_columns, depth_, dk_, first + k, k, count, skipped, fresh, w);
      add_rows(w.p, w.dy_columns, width_, dv_, first + k, k, count, skipped, fresh, w);
    }
  }
  void add_rows(const float* x, const float* columns, std::int64_t size, float* sums, std::int64_t key_at,
                std::int64_t k, std::int64_t count, std::int64_t skipped, bool fresh, const Work& w) const {
    const std::int64_t rows = round_up(w.count), terms = rows - skipped;
    float* const to = sums + (w.head / shared_ * keys_ + key_at) * size;
    if (terms <= 0) {
      if (fresh) std::fill_n(to, count * size, 0.f);
      return;
    }
    // Vectors of 16 columns would write into the next row.
    const bool in_place = size % kBlock == 0;
    for (std::int64_t column = 0; column < size; column += kTileColumns) {
      const std::int64_t width = std::min(kTileColumns, size - column);
      float* const y = in_place ? to + column : w.rows;
      multiply_runs({.x = x + k * kScoreRow + skipped,
                     .x_rows = score_rows_.data(),
                     .y = y,
                     .y_rows = (!in_place        ? packed_rows_
                                : size == depth_ ? key_rows_
                                                 : value_rows_)
                                   .data(),
                     .rows = count,
                     .y_block = kBlock,
                     .w = columns + column * rows + skipped * kTileColumns,
                     .blocks = blocks_of(width),
                     .accumulate = in_place && !fresh},
                    terms);
      for (std::int64_t j = 0; !in_place && j < count; ++j) {
        float* const row = to + j * size + column;
        for (std::int64_t c = 0; c < width; ++c) row[c] = (fresh ? 0.f : row[c]) + y[j * kPanel + c];
      }
    }
  }

  const float *v_, *y_, *stats_, *dy_;
  float *dq_, *dk_, *dv_;
  Pairs key_pairs_;
};

class CpuAttention final : public AttentionKernels {
 public:
  void run(KernelContext& context, const Attention& call) override { Forward(call).run(context); }
  void run(KernelContext& context, const AttentionBackward& call) override { Backward(call).run(context); }
};

}  // namespace
}  // namespace cpu

std::unique_ptr<AttentionKernels> make_cpu_attention() { return std::make_unique<cpu::CpuAttention>(); }

}  // namespace lockstep
