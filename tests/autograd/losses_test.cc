// Losses over the samples of all shards: their values and their errors.
#include "lockstep/autograd/losses.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

using Doubles = std::vector<double>;
constexpr Reduction kNone = Reduction::none, kSum = Reduction::sum;

class LossesTest : public ::testing::Test {
 protected:
  Tensor tensor(const Doubles& values, const Shape& shape, DType dtype = DType::f32) {
    return make_tensor(values, shape, device_, dtype);
  }
  Tensor ids(const std::vector<std::int64_t>& values, const Shape& shape) {
    return Tensor::from(values, shape).to(device_);
  }

  Runtime runtime_{{.cpu_devices = 1, .cores_per_device = 1, .threads_per_shard = 1}};
  Device device_ = runtime_.devices()[0];
};

void expect_near(const Tensor& x, const Doubles& expected, double tolerance = 1e-6) {
  const Doubles found = values(x);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], tolerance) << i;
}

// Targets may be in host memory, as the input of a model may.
TEST_F(LossesTest, TargetsOfTheHost) {
  const Tensor x = tensor({0.5, -1, 2, 1}, {2, 2}), y = tensor({1, 1, -1, 0.5}, {2, 2});
  const Tensor signs = Tensor::from({1.0F, -1.0F, 1.0F, 1.0F}, {2, 2}), rows = Tensor::from({1.0F, -1.0F}, {2});
  EXPECT_EQ(margin_ranking_loss(x, y, signs).item(), margin_ranking_loss(x, y, signs.to(device_)).item());
  EXPECT_EQ(cosine_embedding_loss(x, y, rows).item(), cosine_embedding_loss(x, y, rows.to(device_)).item());
  const Tensor var = Tensor::from({1.0F, 2.0F, 3.0F, 4.0F}, {2, 2});
  EXPECT_EQ(gaussian_nll_loss(x, signs, var).item(), gaussian_nll_loss(x, signs.to(device_), var.to(device_)).item());
}

// A window of zeros has no gradient, also where the slope of the power is infinite.
TEST_F(LossesTest, NormsOfZeros) {
  for (const double power : {0.5, 1.0, 2.0}) {
    const Tensor x = tensor({0, 0, 0, 0, 1, 2, 0, 3}, {1, 1, 2, 4}).set_requires_grad(true);
    sum(lp_pool2d(x, power, {.kernel_size = {1, 2}, .stride = {1, 2}})).backward();
    const Doubles found = values(x.grad());
    EXPECT_EQ(Doubles(found.begin(), found.begin() + 4), Doubles(4, 0)) << power;
  }
}

TEST_F(LossesTest, Distances) {
  const Tensor x = tensor({0, 1, 2, 7}, {4}), t = tensor({0, 0.5, 4, 4}, {4});
  expect_near(mse_loss(x, t, {kNone}), {0, 0.25, 4, 9});
  expect_near(mse_loss(x, t, {kSum}), {13.25});
  expect_near(mse_loss(x, t), {13.25 / 4});
  expect_near(l1_loss(x, t, {kNone}), {0, 0.5, 2, 3});
  expect_near(l1_loss(x, t), {5.5 / 4});
  expect_near(huber_loss(x, t, {.reduction = kNone}), {0, 0.125, 1.5, 2.5});
  expect_near(huber_loss(x, t, {.reduction = kNone, .delta = 2}), {0, 0.125, 2, 4});
  expect_near(smooth_l1_loss(x, t, {.reduction = kNone, .beta = 2}), {0, 0.0625, 1, 2});
  expect_near(smooth_l1_loss(x, t, {.reduction = kNone, .beta = 0}), {0, 0.5, 2, 3});
}

// Rows are weighted; PyTorch refuses such a weight beside labels.
TEST_F(LossesTest, WeightsOfClassesHaveNoGradient) {
  const Tensor x = tensor({0, 1, 2, 3}, {2, 2}), labels = ids({0, 1}, {2});
  const Tensor weight = as_leaf(tensor({1, 2}, {2}));
  EXPECT_ERROR(cross_entropy(x, labels, {.weight = weight}),
               "cross_entropy: weight requires a gradient, which classes' weights do not get: pass weight.detach()");
  EXPECT_ERROR(cross_entropy(x, softmax(x), {.weight = weight}), "weight requires a gradient");
  EXPECT_ERROR(nll_loss(x, labels, {.weight = weight}), "nll_loss: weight requires a gradient");
  EXPECT_EQ(values(nll_loss(x, labels, {.weight = weight.detach()})).size(), 1U);
  const NoGradGuard no_grad;
  EXPECT_EQ(values(nll_loss(x, labels, {.weight = weight})).size(), 1U);
}

// Far out there is no overflow, and at zero the slope is that of the formula.
TEST_F(LossesTest, BinaryCrossEntropyIsStable) {
  Tensor x = as_leaf(tensor({0, 0, 200, -200, 200, -200}, {6}));
  const Tensor t = tensor({0, 1, 1, 1, 0, 0}, {6});
  expect_near(binary_cross_entropy_with_logits(x, t, {.reduction = kNone}),
              {std::log(2.0), std::log(2.0), 0, 200, 200, 0});
  binary_cross_entropy_with_logits(x, t, {.reduction = kSum}).backward();
  expect_near(x.grad(), {0.5, -0.5, 0, -1, 1, 0});
  const Tensor small = tensor({-1, 0.5}, {2});
  const Doubles plain{-std::log(1 / (1 + std::exp(1.0))), -std::log(1 - 1 / (1 + std::exp(-0.5)))};
  expect_near(
      binary_cross_entropy_with_logits(
          small, tensor({1, 0}, {2}), {.weight = tensor({3}, {1}), .reduction = kNone, .pos_weight = tensor({5}, {1})}),
      {15 * plain[0], 3 * plain[1]}, 1e-5);
}

TEST_F(LossesTest, KlDivOfNothingIsZero) {
  const Tensor x = tensor({-1, -2, -3, -4}, {2, 2}), t = tensor({0, 1, 0.5, 0.5}, {2, 2});
  const double half = 0.5 * std::log(0.5);
  expect_near(kl_div(x, t, {.reduction = kNone}), {0, 2, half + 1.5, half + 2});
  expect_near(kl_div(x, t, {.reduction = Reduction::batchmean}), {(2 * half + 5.5) / 2});
  expect_near(kl_div(x, t), {(2 * half + 5.5) / 4});
  EXPECT_ERROR(l1_loss(x, t, {Reduction::batchmean}), "l1_loss: reduction batchmean, expected none, mean, or sum");
}

TEST_F(LossesTest, NllOfWeightedAndIgnoredLabels) {
  const Tensor x = tensor({-1, -2, -3, -4, -5, -6}, {3, 2}), labels = ids({0, 1, 7}, {3});
  const Tensor w = tensor({1, 3}, {2});
  expect_near(nll_loss(x, ids({0, 1, 1}, {3})), {11.0 / 3});
  expect_near(nll_loss(x, labels, {.ignore_index = 7}), {5.0 / 2});
  expect_near(nll_loss(x, labels, {.weight = w, .ignore_index = 7}), {13.0 / 4});
  expect_near(nll_loss(x, labels, {.weight = w, .ignore_index = 7, .reduction = kNone}), {1, 12, 0});
  expect_near(nll_loss(x, labels, {.weight = w, .ignore_index = 7, .reduction = kSum}), {13});
  EXPECT_TRUE(std::isnan(nll_loss(x, ids({7, 7, 7}, {3}), {.ignore_index = 7}).item<float>()));
  EXPECT_ERROR(values(nll_loss(x, labels)), "index: 7 at place");
  expect_near(nll_loss(x, ids({0, 1, -100}, {3})), {5.0 / 2});
  EXPECT_ERROR(values(nll_loss(x, ids({0, 1, -100}, {3}), {.ignore_index = std::nullopt})), "index: -100 at place");
}

// An ignored row has no gradient, whatever it holds.
TEST_F(LossesTest, IgnoredRowsHaveNoGradient) {
  Tensor x = as_leaf(tensor({1, 2, 1e30, -1e30}, {2, 2}));
  cross_entropy(x, ids({0, -100}, {2})).backward();
  const Doubles g = values(x.grad());
  EXPECT_NEAR(g[0], -1 / (1 + std::exp(-1.0)), 1e-6);
  EXPECT_EQ(g[2], 0);
  EXPECT_EQ(g[3], 0);
}

// The kernel's loss and gradient are those of the composition, which weights run.
TEST_F(LossesTest, CrossEntropyIgnoresLabels) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const Doubles logits = Random(4).uniforms(20, -2, 2);
    const Tensor ones = tensor({1, 1, 1, 1}, {4}, dtype == DType::f64 ? DType::f64 : DType::f32);
    for (const std::int64_t ignored : {-100, -1, 2}) {
      for (const double smoothing : {0.0, 0.2}) {
        SCOPED_TRACE(fmt::format("{}, label {}, smoothing {}", name(dtype), ignored, smoothing));
        const Tensor labels = ids({1, ignored, 0, 3, ignored}, {5});
        Tensor x = as_leaf(tensor(logits, {5, 4}, dtype)), y = as_leaf(tensor(logits, {5, 4}, dtype));
        CrossEntropyOptions options{.label_smoothing = smoothing};
        if (ignored != -100) options.ignore_index = ignored;
        const Tensor loss = cross_entropy(x, labels, options);
        options.weight = ones;
        const Tensor composed = cross_entropy(y, labels, options);
        expect_near(loss, values(composed));
        loss.backward();
        composed.backward();
        expect_near(x.grad(), values(y.grad()), is_half_dtype(dtype) ? 2e-3 : 1e-6);
      }
    }
  }
}

TEST_F(LossesTest, OfNoLabelsThatCountAreNaN) {
  Tensor x = as_leaf(tensor({1, 2, 3, 4}, {2, 2}));
  const Tensor loss = cross_entropy(x, ids({-100, -100}, {2}));
  EXPECT_TRUE(std::isnan(values(loss)[0]));
  loss.backward();
  EXPECT_EQ(values(x.grad()), (Doubles{0, 0, 0, 0}));
  EXPECT_TRUE(std::isnan(values(nll_loss(x, ids({-100, -100}, {2})))[0]));
  const Tensor none = Tensor::host({0, 2}).to(device_);
  EXPECT_TRUE(std::isnan(values(cross_entropy(none, Tensor::host({0}, DType::i64).to(device_)))[0]));
  EXPECT_TRUE(std::isnan(values(mse_loss(none, none))[0]));
}

TEST_F(LossesTest, LabelsThatAreNotClassesAreErrors) {
  const Tensor x = tensor({1, 2, 3, 4}, {2, 2});
  EXPECT_ERROR(values(cross_entropy(x, ids({0, -1}, {2}))), "cross_entropy: label -1 of sample 1 is outside [0, 2)");
  EXPECT_ERROR(values(cross_entropy(x, ids({0, -100}, {2}), {.ignore_index = -1})), "label -100 of sample 1");
  EXPECT_ERROR(values(cross_entropy(x, ids({0, -100}, {2}), {.ignore_index = std::nullopt})), "label -100 of sample 1");
}

// The composed loss and the kernel's agree.
TEST_F(LossesTest, CrossEntropyIsOneFunction) {
  const Tensor x = tensor(Random(3).uniforms(12, -2, 2), {3, 4}), labels = ids({1, 3, 0}, {3});
  const Tensor ones = tensor({1, 1, 1, 1}, {4}), hot = cast(one_hot(labels, 4), DType::f32);
  for (double smoothing : {0.0, 0.3}) {
    const Doubles kernel = values(cross_entropy(x, labels, {.label_smoothing = smoothing}));
    expect_near(cross_entropy(x, labels, {.weight = ones, .label_smoothing = smoothing}), kernel);
    expect_near(cross_entropy(x, labels, {.ignore_index = -1, .label_smoothing = smoothing}), kernel);
    expect_near(cross_entropy(x, hot, {.label_smoothing = smoothing}), kernel);
    expect_near(mean(cross_entropy(x, labels, {.reduction = kNone, .label_smoothing = smoothing})), kernel);
  }
  // One row without an axis for samples.
  EXPECT_EQ(cross_entropy(x.select(0, 1), ids({3}, {}), {.reduction = kNone}).shape(), Shape());
}

TEST_F(LossesTest, HalfTypesAreComputedInF32) {
  const Tensor x = tensor({0.5, 1, 2, 3}, {2, 2}, DType::bf16), t = tensor({0, 1, 1, 0}, {2, 2}, DType::bf16);
  for (const Tensor& loss : {mse_loss(x, t), mse_loss(x, t, {kSum}), l1_loss(x, t), huber_loss(x, t),
                             smooth_l1_loss(x, t), binary_cross_entropy_with_logits(x, t), kl_div(x, t),
                             nll_loss(x, ids({0, 1}, {2})), cross_entropy(x, ids({0, 1}, {2})), cross_entropy(x, t),
                             cross_entropy(x, ids({0, 1}, {2}), {.weight = tensor({1, 2}, {2})})}) {
    EXPECT_EQ(loss.dtype(), DType::f32);
    EXPECT_EQ(loss.shape(), Shape{1});
  }
}

TEST_F(LossesTest, Errors) {
  const Tensor x = tensor({1, 2, 3, 4}, {2, 2}), y = tensor({1, 2}, {2}), labels = ids({0, 1}, {2});
  EXPECT_ERROR(mse_loss(x, y), "mse_loss: [2, 2] f32 on cpu:0 and [2] f32 on cpu:0, expected the same shape");
  EXPECT_ERROR(huber_loss(x, cast(x, DType::f64)),
               "huber_loss: [2, 2] f32 on cpu:0 and [2, 2] f64 on cpu:0, expected one");
  EXPECT_ERROR(huber_loss(x, x, {.delta = 0}), "huber_loss: delta 0, expected above 0");
  EXPECT_ERROR(smooth_l1_loss(x, x, {.beta = -1}), "smooth_l1_loss: beta -1, expected at least 0");
  EXPECT_ERROR(binary_cross_entropy_with_logits(y, y, {.weight = tensor({1, 1}, {2, 1})}),
               "binary_cross_entropy_with_logits: the weights broadcast the losses to [2, 2], expected weights that "
               "broadcast to [2]");
  EXPECT_ERROR(cross_entropy(x, y), "cross_entropy: labels are " + y.describe() +
                                        ", expected i64, or probabilities of shape " + x.shape().str());
  EXPECT_ERROR(cross_entropy(x, ids({0, 1}, {2, 1})), "labels are [2, 1] i64 on cpu:0, expected i64 [2], one for each");
  EXPECT_ERROR(cross_entropy(x, labels, {.label_smoothing = 2}), "cross_entropy: label smoothing 2, expected 0 to 1");
  EXPECT_ERROR(cross_entropy(x, labels, {.weight = tensor({1}, {1})}),
               "cross_entropy: weight is [1] f32 on cpu:0, expected one for each of 2 classes");
  EXPECT_ERROR(cross_entropy(x, x, {.ignore_index = 3}),
               "cross_entropy: ignore_index 3 with probabilities, expected labels (i64)");
  EXPECT_ERROR(nll_loss(x, ids({0}, {1})), "nll_loss: labels are [1] i64 on cpu:0, expected i64 [2], one for each row");
  EXPECT_ERROR(nll_loss(x, y), "nll_loss: labels are [2] f32 on cpu:0, expected i64 [2]");
}

// Labels and weights differ from shard to shard, and so do their numbers of samples; some have none, and in some no
// label counts. The loss is normalized over all of them.
struct Batch {
  std::vector<std::int64_t> rows{3, 1, 0, 4, 2, 3, 0, 1};
  static constexpr std::int64_t kClasses = 5, kFeatures = 3;
  std::int64_t samples = 14;
  std::vector<std::int64_t> labels{0, 4, 2, -100, 1, 1, -100, 4, 3, 0, -100, -100, -100, 2};
};

struct Found {
  std::vector<float> loss, gradient;
  bool operator==(const Found&) const = default;
};

using Loss = std::function<Tensor(const Tensor& y, const Tensor& labels, const Tensor& target)>;

// On so many devices, or on one without a cut.
Found found_on(int devices, const Loss& loss) {
  const Batch batch;
  Runtime runtime({.cpu_devices = std::max(devices, 1), .cores_per_device = 1, .threads_per_shard = 1});
  const auto& all = runtime.devices();
  Tensor x = Tensor(Random(1).floats({batch.samples, batch.kFeatures})).to(all[0]);
  Tensor target = Tensor(Random(2).floats({batch.samples, batch.kClasses}, 0, 1)).to(all[0]);
  Tensor labels = Tensor::from(batch.labels, {batch.samples}).to(all[0]);
  Tensor w = as_leaf(Tensor(Random(3).floats({batch.kClasses, batch.kFeatures})).to(all[0]));
  if (devices > 0) {
    std::vector<Slot> slots;
    for (std::size_t s = 0; s < batch.rows.size(); ++s) {
      slots.push_back({static_cast<int>(s), all[s * all.size() / batch.rows.size()]});
    }
    const auto at = std::make_shared<Placement>(batch.rows, slots);
    x = scatter(x, at), target = scatter(target, at), labels = scatter(labels, at);
  }
  const Tensor value = loss(linear(x, w), labels, target);
  value.backward();
  return {value.to_vector<float>(), w.grad().to_vector<float>()};
}

TEST(LossesOfABatch, AreOfAllShardsWithTheSameBits) {
  const Tensor w = Tensor::from(std::vector<float>{1, 2, 0.5, 3, 0.25}, {5});
  const auto at_least_zero = [](const Tensor& labels) { return where(lt(labels, 0), 0.0, labels); };
  const std::vector<std::pair<std::string, Loss>> losses{
      {"mse", [](const Tensor& y, const Tensor&, const Tensor& t) { return mse_loss(y, t); }},
      {"mse sum", [](const Tensor& y, const Tensor&, const Tensor& t) { return mse_loss(y, t, {kSum}); }},
      {"l1", [](const Tensor& y, const Tensor&, const Tensor& t) { return l1_loss(y, t); }},
      {"huber", [](const Tensor& y, const Tensor&, const Tensor& t) { return huber_loss(y, t, {.delta = 0.3}); }},
      {"smooth l1",
       [](const Tensor& y, const Tensor&, const Tensor& t) { return smooth_l1_loss(y, t, {.beta = 0.3}); }},
      {"binary",
       [=](const Tensor& y, const Tensor&, const Tensor& t) {
         return binary_cross_entropy_with_logits(y, t, {.weight = w, .pos_weight = w});
       }},
      {"kl", [](const Tensor& y, const Tensor&,
                const Tensor& t) { return kl_div(log_softmax(y), t, {.reduction = Reduction::batchmean}); }},
      {"nll", [=](const Tensor& y, const Tensor& labels,
                  const Tensor&) { return nll_loss(y, at_least_zero(labels), {.weight = w}); }},
      {"nll ignoring", [](const Tensor& y, const Tensor& labels,
                          const Tensor&) { return nll_loss(y, labels, {.ignore_index = -100}); }},
      {"cross entropy",
       [=](const Tensor& y, const Tensor& labels, const Tensor&) { return cross_entropy(y, at_least_zero(labels)); }},
      {"cross entropy ignoring",
       [=](const Tensor& y, const Tensor& labels, const Tensor&) { return cross_entropy(y, labels); }},
      {"cross entropy ignoring a class",
       [=](const Tensor& y, const Tensor& labels, const Tensor&) {
         return cross_entropy(y, at_least_zero(labels), {.ignore_index = 0, .label_smoothing = 0.1});
       }},
      {"cross entropy with everything",
       [=](const Tensor& y, const Tensor& labels, const Tensor&) {
         return cross_entropy(y, labels, {.weight = w, .ignore_index = -100, .label_smoothing = 0.1});
       }},
      {"cross entropy of steps",
       [=](const Tensor& y, const Tensor& labels, const Tensor&) {
         return cross_entropy(stack({y, y * 2}, 2), stack({labels, labels}, 1), {.weight = w, .ignore_index = -100});
       }},
      {"cross entropy of probabilities", [=](const Tensor& y, const Tensor&, const Tensor& t) {
         return cross_entropy(y, t, {.weight = w, .label_smoothing = 0.1});
       }}};
  for (const auto& [name, loss] : losses) {
    SCOPED_TRACE(name);
    const Found whole = found_on(0, loss), one = found_on(1, loss);
    const auto doubles = [](const std::vector<float>& v) { return Doubles(v.begin(), v.end()); };
    EXPECT_LT(distance(doubles(one.loss), doubles(whole.loss)), 1e-6);
    EXPECT_LT(distance(doubles(one.gradient), doubles(whole.gradient)), 1e-6);
    for (int devices : {2, 3, 8}) EXPECT_EQ(found_on(devices, loss), one) << devices << " devices";
  }
}

// Shards may have only ignored labels; then the batch may, too.
TEST(LossesOfABatch, CountLabelsOfAllShards) {
  const Batch batch;
  for (const int shards : {1, 3, 8}) {
    SCOPED_TRACE(shards);
    Runtime runtime({.cpu_devices = 2, .cores_per_device = 1, .threads_per_shard = 1});
    const auto& devices = runtime.devices();
    std::vector<std::int64_t> rows(static_cast<std::size_t>(shards), batch.samples / shards);
    rows[0] += batch.samples % shards;
    std::vector<Slot> slots;
    for (int s = 0; s < shards; ++s) slots.push_back({s, devices[static_cast<std::size_t>(2 * s / shards)]});
    const auto at = std::make_shared<Placement>(rows, slots);
    const Tensor logits = Random(1).floats({batch.samples, batch.kClasses});
    const auto loss_of = [&](const std::vector<std::int64_t>& labels, const CrossEntropyOptions& options = {}) {
      Tensor x = as_leaf(scatter(logits, at));
      const Tensor loss = cross_entropy(x, scatter(Tensor::from(labels, {batch.samples}), at), options);
      loss.backward();
      return std::pair(values(loss), values(gather(x.grad())));
    };
    const auto ones = [&] { return Tensor::from(std::vector<float>(batch.kClasses, 1), {batch.kClasses}); };
    const auto found = loss_of(batch.labels), composed = loss_of(batch.labels, {.weight = ones()});
    EXPECT_LT(distance(found.first, composed.first), 1e-6);
    EXPECT_LT(distance(found.second, composed.second), 1e-6);
    // None is ignored: the bits of a loss that ignores nothing.
    std::vector<std::int64_t> all(14, 3);
    EXPECT_EQ(loss_of(all), loss_of(all, {.ignore_index = std::nullopt}));
    const auto [nothing, zeros] = loss_of(std::vector<std::int64_t>(14, -100));
    EXPECT_TRUE(std::isnan(nothing[0]));
    EXPECT_EQ(zeros, Doubles(static_cast<std::size_t>(batch.samples * batch.kClasses)));
    // The error numbers the sample in the batch.
    all[11] = 99;
    EXPECT_ERROR(loss_of(all), "cross_entropy: label 99 of sample 11 is outside [0, 5)");
  }
}

}  // namespace
}  // namespace lockstep::testing
