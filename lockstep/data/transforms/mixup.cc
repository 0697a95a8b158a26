#include "lockstep/data/transforms/mixup.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/plain_math.h"
#include "lockstep/data/transforms/pixels.h"

namespace lockstep {
namespace {

// Draws from Gamma distributions under a key. Each random number takes a pair of draws, as in Draws.
class GammaDraws {
 public:
  explicit GammaDraws(RandomKey key) : key_(key) {}
  // Returns the logarithm of a draw from Gamma(shape, 1) (Marsaglia and Tsang 2000; for a shape below 1, by way of
  // shape + 1), because draws of a small shape are often below the smallest double.
  double log_gamma(double shape) {
    if (shape < 1) {
      const double above = log_gamma(shape + 1);
      return above + log_uniform() / shape;
    }
    const double d = shape - 1. / 3, c = 1 / std::sqrt(9 * d);
    while (true) {
      const double x = random_normal(key_, 2 * next_++);
      const double root = 1 + c * x, v = root * root * root;
      const double limit = log_uniform();
      if (root <= 0) continue;
      if (limit < 0.5 * x * x + d - d * v + d * plain_log(v)) return plain_log(d * v);
    }
  }

 private:
  double log_uniform() { return plain_log(random_uniform(key_, 2 * next_++) + 0x1p-25); }

  RandomKey key_;
  std::uint64_t next_ = 0;
};

double symmetric_beta(double alpha, RandomKey key) {
  GammaDraws draws(key);
  const double first = draws.log_gamma(alpha), second = draws.log_gamma(alpha);
  return first > second ? 1 / (1 + plain_exp(second - first)) : 1 - 1 / (1 + plain_exp(first - second));
}

void check_mix(std::string_view name, const MixOptions& o) {
  check(o.classes >= 1, "{}: {} classes, expected at least 1", name, o.classes);
  check(o.alpha >= 0.001 && o.alpha <= 1000, "{}: alpha {}, expected 0.001 to 1000", name, o.alpha);
}

// Checks the batch and returns its number of examples.
std::int64_t check_batch(std::string_view name, const Example& batch) {
  check(batch.size() == 2, "{}: a batch of {} parts, expected pictures and labels", name, batch.size());
  const Tensor &x = batch[0], &labels = batch[1];
  check(x.defined() && x.device().is_host() && x.dtype() == DType::f32 && x.shape().dim() >= 2,
        "{}: the pictures are {}, expected f32 [n, ...] in host memory: put ToFloat or Normalize before", name, x);
  check(labels.defined() && labels.device().is_host() && labels.dtype() == DType::i64 && labels.shape().dim() == 1 &&
            labels.size(0) == x.size(0),
        "{}: the labels are {}, expected i64 [{}] in host memory", name, labels, x.size(0));
  return x.size(0);
}

Tensor mixed_labels(std::string_view name, const Tensor& labels, std::int64_t classes, double part) {
  const std::int64_t n = labels.numel();
  const auto* label = labels.data_ptr<const std::int64_t>();
  Tensor result = Tensor::host({n, classes});
  auto* out = result.data_ptr<float>();
  std::fill_n(out, n * classes, 0.0f);
  for (std::int64_t i = 0; i < n; ++i) {
    check(label[i] >= 0 && label[i] < classes, "{}: label {} is {}, expected 0 to {}", name, i, label[i], classes - 1);
    const std::int64_t other = label[i == 0 ? n - 1 : i - 1];
    out[i * classes + label[i]] += static_cast<float>(part);
    if (other >= 0 && other < classes) out[i * classes + other] += static_cast<float>(1 - part);
  }
  return result;
}

}  // namespace

MixUp::MixUp(const MixOptions& options) : options_(options) { check_mix("MixUp", options); }

Example MixUp::operator()(const Example& batch, RandomKey key) const {
  const std::int64_t n = check_batch("MixUp", batch);
  const double part = symmetric_beta(options_.alpha, key);
  const auto mine = static_cast<float>(part), others = static_cast<float>(1 - part);
  Tensor labels = mixed_labels("MixUp", batch[1], options_.classes, part);
  Tensor result = Tensor::host(batch[0].shape());
  const auto* in = batch[0].data_ptr<const float>();
  auto* out = result.data_ptr<float>();
  const std::int64_t row = n == 0 ? 0 : batch[0].numel() / n;
  for (std::int64_t i = 0; i < n; ++i) {
    const float* a = in + i * row;
    const float* b = in + (i == 0 ? n - 1 : i - 1) * row;
    for (std::int64_t k = 0; k < row; ++k) out[i * row + k] = mine * a[k] + others * b[k];
  }
  return {result, labels};
}

CutMix::CutMix(const MixOptions& options) : options_(options) { check_mix("CutMix", options); }

Example CutMix::operator()(const Example& batch, RandomKey key) const {
  const std::int64_t n = check_batch("CutMix", batch);
  const Tensor& x = batch[0];
  check(x.shape().dim() == 4, "CutMix: the pictures are {}, expected f32 [n, channels, height, width]", x);
  const std::int64_t planes = x.size(1), height = x.size(2), width = x.size(3);
  check(height >= 1 && width >= 1, "CutMix: the pictures are {}, expected at least one pixel", x);
  const double root = 0.5 * std::sqrt(1 - symmetric_beta(options_.alpha, key));
  Draws draws(random_key(key.seed, {key.stream, hash_name("CutMix")}));
  const std::int64_t center_y = draws.below(height), center_x = draws.below(width);
  const auto half_h = static_cast<std::int64_t>(root * static_cast<double>(height));
  const auto half_w = static_cast<std::int64_t>(root * static_cast<double>(width));
  const std::int64_t top = std::max<std::int64_t>(center_y - half_h, 0), bottom = std::min(center_y + half_h, height);
  const std::int64_t left = std::max<std::int64_t>(center_x - half_w, 0), right = std::min(center_x + half_w, width);
  const auto area = static_cast<double>((bottom - top) * (right - left));
  Tensor labels = mixed_labels("CutMix", batch[1], options_.classes, 1 - area / static_cast<double>(height * width));
  Tensor result = Tensor::host(x.shape());
  const auto* in = x.data_ptr<const float>();
  auto* out = result.data_ptr<float>();
  std::copy_n(in, x.numel(), out);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t other = i == 0 ? n - 1 : i - 1;
    for (std::int64_t c = 0; c < planes; ++c) {
      for (std::int64_t y = top; y < bottom; ++y) {
        std::copy_n(in + ((other * planes + c) * height + y) * width + left, right - left,
                    out + ((i * planes + c) * height + y) * width + left);
      }
    }
  }
  return {result, labels};
}

}  // namespace lockstep
