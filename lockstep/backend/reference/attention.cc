#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "lockstep/backend/random.h"
#include "lockstep/backend/reference/elements.h"
#include "lockstep/backend/reference/families.h"

namespace lockstep::reference {
namespace {

constexpr double kLog2E = 1.44269504088896341;

// The sizes of a call, and its weights, a query at a time.
class Weights {
 public:
  Weights(const AttentionRule& rule, const View& q, const View& k)
      : heads(q.shape[0]), queries(q.shape[1]), keys(k.shape[1]), depth(q.shape[2]),
        shared(heads / std::max<std::int64_t>(k.shape[0], 1)), rule_(rule), q_(q), k_(k), mask_(rule.mask),
        key_(rule.keep < 1 ? current_key(rule.key, rule.key_at) : RandomKey{}) {}

  std::int64_t key_row(std::int64_t head, std::int64_t j) const { return head / shared * keys + j; }
  // The weights of query i before dropout. Also writes its statistics.
  std::vector<double> of(std::int64_t head, std::int64_t i, double& largest, double& sum) const {
    std::vector<double> w(static_cast<std::size_t>(keys));
    largest = -std::numeric_limits<double>::infinity();
    for (std::int64_t j = 0; j < keys; ++j) {
      double score = 0;
      for (std::int64_t e = 0; e < depth; ++e) {
        score += q_[(head * queries + i) * depth + e] * k_[key_row(head, j) * depth + e];
      }
      score = score * rule_.scale + mask(head, i, j);
      if (rule_.causal && j > rule_.position + i) score = -std::numeric_limits<double>::infinity();
      w[static_cast<std::size_t>(j)] = score;
      largest = std::max(largest, score);
    }
    sum = 0;
    for (double& x : w) sum += x = std::exp(x - largest);
    for (double& x : w) x /= sum;
    return w;
  }
  // What dropout multiplies a weight by.
  double kept(std::int64_t head, std::int64_t i, std::int64_t j) const {
    if (rule_.keep >= 1) return 1;
    const auto at = static_cast<std::uint64_t>((head * queries + i) * keys + j);
    return random_uniform(key_, at) < rule_.keep ? 1 / rule_.keep : 0;
  }

  const std::int64_t heads, queries, keys, depth, shared;

 private:
  double mask(std::int64_t head, std::int64_t i, std::int64_t j) const {
    if (!rule_.mask) return 0;
    const Shape& s = rule_.mask.shape;
    const std::int64_t m = head / rule_.heads_of_mask % s[0];
    return mask_[(m * s[1] + (s[1] > 1 ? i : 0)) * s[2] + (s[2] > 1 ? j : 0)];
  }

  const AttentionRule& rule_;
  Elements q_, k_, mask_;
  RandomKey key_;
};

class Attention final : public AttentionKernels {
 public:
  void run(KernelContext&, const kernels::Attention& call) override {
    const Weights weights(call.rule, call.q, call.k);
    const Elements v(call.v), y(call.y), stats(call.stats);
    const std::int64_t width = call.v.shape[2];
    for (std::int64_t row = 0; row < weights.heads * weights.queries; ++row) {
      const std::int64_t head = row / weights.queries, i = row % weights.queries;
      double largest, sum;
      const std::vector<double> w = weights.of(head, i, largest, sum);
      for (std::int64_t d = 0; d < width; ++d) {
        double total = 0;
        for (std::int64_t j = 0; j < weights.keys; ++j) {
          total += w[static_cast<std::size_t>(j)] * weights.kept(head, i, j) * v[weights.key_row(head, j) * width + d];
        }
        y.set(row * width + d, total);
      }
      stats.set(row, largest * kLog2E);
      stats.set(weights.heads * weights.queries + row, 1 / sum);
    }
  }

  void run(KernelContext&, const kernels::AttentionBackward& call) override {
    const Weights weights(call.rule, call.q, call.k);
    const Elements q(call.q), k(call.k), v(call.v), dy(call.dy);
    const std::int64_t width = call.v.shape[2], depth = weights.depth;
    const auto zeros = [](const View& x) { return std::vector<double>(static_cast<std::size_t>(x.numel())); };
    std::vector<double> dq = zeros(call.dq), dk = zeros(call.dk), dv = zeros(call.dv);
    const auto at = [](std::vector<double>& x, std::int64_t i) -> double& { return x[static_cast<std::size_t>(i)]; };
    for (std::int64_t row = 0; row < weights.heads * weights.queries; ++row) {
      const std::int64_t head = row / weights.queries, i = row % weights.queries;
      double largest, sum, delta = 0;
      const std::vector<double> w = weights.of(head, i, largest, sum);
      std::vector<double> dw(w.size());
      for (std::int64_t j = 0; j < weights.keys; ++j) {
        const double p = w[static_cast<std::size_t>(j)], kept = weights.kept(head, i, j);
        double dot = 0;
        for (std::int64_t d = 0; d < width; ++d) {
          const std::int64_t value = weights.key_row(head, j) * width + d;
          dot += dy[row * width + d] * v[value];
          at(dv, value) += p * kept * dy[row * width + d];
        }
        at(dw, j) = dot * kept;
        delta += p * dot * kept;
      }
      for (std::int64_t j = 0; j < weights.keys; ++j) {
        const double ds = w[static_cast<std::size_t>(j)] * (at(dw, j) - delta) * call.rule.scale;
        for (std::int64_t e = 0; e < depth; ++e) {
          const std::int64_t key = weights.key_row(head, j) * depth + e;
          at(dq, row * depth + e) += ds * k[key];
          at(dk, key) += ds * q[row * depth + e];
        }
      }
    }
    store(dq, call.dq), store(dk, call.dk), store(dv, call.dv);
  }
};

}  // namespace

std::unique_ptr<AttentionKernels> make_attention() { return std::make_unique<Attention>(); }

}  // namespace lockstep::reference
