// An operation on cut tensors is the operation on all samples together, or an error, for any number of devices, shards,
// and samples.
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "lockstep/autograd/function.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/ops/copy.h"
#include "tests/autograd/gradient_testing.h"
#include "tests/expect_error.h"

namespace lockstep::testing {
namespace {

constexpr std::int64_t kSteps = 3, kChannels = 4;

// A batch [n, kSteps, kChannels], cut or whole, and two parameters, replicated or whole.
struct Operands {
  Tensor x, matrix, row;
};

// i64 numbers beside a parameter.
Tensor numbers_like(const Tensor& like, const std::vector<std::int64_t>& values) {
  const Array host = Array::from(values, {std::ssize(values)});
  if (like->kind != Kind::replicated) return Tensor(host).to(like.device());
  std::vector<Array> parts;
  for (Device device : like.devices()) parts.push_back(ops::to_device(host, device));
  return replicated_tensor(std::move(parts));
}

// One operation; n is the number of samples.
struct Operation {
  std::string name;
  std::function<Tensor(const Tensor& x, const Operands& o, std::int64_t n)> run;
};

const std::vector<Operation>& operations() {
  using T = const Tensor&;
  using O = const Operands&;
  static const std::vector<Operation> all{
      {"relu", [](T x, O, auto) { return relu(x); }},
      {"times row", [](T x, O o, auto) { return x * o.row; }},
      {"row minus", [](T x, O o, auto) { return o.row - x; }},
      {"plus itself", [](T x, O, auto) { return x + tanh(x) * 0.5; }},
      {"beside the input", [](T x, O o, auto) { return x + o.x; }},
      {"over its mean", [](T x, O, auto) { return x / (mean(square(x)) + 1.0); }},
      {"minus the mean over samples",
       [](T x, O, auto) {
         Shape one = x.shape();
         one[0] = 1;
         return x - sum_to(x, one) * 0.1;
       }},
      {"sum over the last axis",
       [](T x, O, auto) {
         Shape one = x.shape();
         one[-1] = 1;
         return x + sum_to(x, one);
       }},
      {"softmax", [](T x, O, auto) { return softmax(x); }},
      {"matmul", [](T x, O o, auto) { return matmul(x, o.matrix); }},
      {"matmul from the left", [](T x, O o, auto) { return matmul(o.matrix, x); }},
      {"linear", [](T x, O o, auto) { return linear(x, o.matrix); }},
      {"product with itself", [](T x, O, auto) { return matmul(transpose(x), x); }},
      {"steps as samples",
       [](T x, O, std::int64_t n) {
         return x.reshape({n * kSteps, kChannels});
       }},
      {"back",
       [](T x, O, std::int64_t n) {
         return x.reshape({n, kSteps, kChannels});
       }},
      {"flat", [](T x, O, auto) { return flatten(x, 1); }},
      {"samples taken apart",
       [](T x, O, auto) {
         return x.reshape({-1, 5});
       }},
      {"time first", [](T x, O, auto) { return transpose(x, 0, 1); }},
      {"channels first", [](T x, O, auto) { return transpose(x, 0, x.shape().dim() - 1); }},
      {"twice",
       [](T x, O, auto) {
         return concatenate(std::array{x, relu(x)});
       }},
      {"first row", [](T x, O, auto) { return x.narrow(0, 0, 1); }},
      {"total", [](T x, O, auto) { return sum(x); }},
      {"the larger of row", [](T x, O o, auto) { return maximum(x, o.row); }},
      {"where above row", [](T x, O o, auto) { return where(gt(x, o.row), x, o.row * 0.5); }},
      {"without negatives", [](T x, O, auto) { return masked_fill(x, lt(x, 0), 0); }},
      {"mean over the last axis", [](T x, O, auto) { return mean(x, -1); }},
      {"sum over axis 1", [](T x, O, auto) { return sum(x, 1); }},
      {"sum over axis 0", [](T x, O, auto) { return x - sum(x, 0, true) * 0.1; }},
      {"mean over axis 0", [](T x, O, auto) { return mean(x, 0); }},
      {"scaled by the variance",
       [](T x, O, auto) {
         return x * var(x, {0, -1}, {.correction = 0, .keepdim = true});
       }},
      {"over the largest of all", [](T x, O, auto) { return x / (amax(abs(x)) + 1.0); }},
      {"minus the largest along axis 0", [](T x, O, auto) { return x - amax(x, 0, true); }},
      {"smallest along axis 1", [](T x, O, auto) { return amin(x, 1); }},
      {"values of max", [](T x, O, auto) { return max(x, -1).values; }},
      {"logsumexp along axis 0", [](T x, O, auto) { return x - logsumexp(x, 0, true); }},
      {"cumsum along axis 0", [](T x, O, auto) { return cumsum(x, 0); }},
      {"cumsum along axis 1", [](T x, O, auto) { return cumsum(x, 1); }},
      {"softmax along axis 0", [](T x, O, auto) { return softmax(x, 0); }},
      {"unsqueeze", [](T x, O, auto) { return unsqueeze(x, 0); }},
      {"unsqueeze at the end", [](T x, O, auto) { return unsqueeze(x, -1); }},
      {"squeeze", [](T x, O, auto) { return squeeze(x); }},
      {"expand",
       [](T x, O, auto) {
         Shape shape = unsqueeze(x, 1).shape();
         shape[1] = 2;
         return expand(unsqueeze(x, 1), shape);
       }},
      {"flat from axis 0", [](T x, O, auto) { return flatten(x); }},
      {"axes turned",
       [](T x, O, auto) {
         return permute(x, {-1, 0, 1});
       }},
      {"one step", [](T x, O, auto) { return x.select(1, -1); }},
      {"one sample", [](T x, O, auto) { return x.select(0, 0); }},
      {"every other element", [](T x, O, auto) { return slice(x, -1, {}, {}, 2); }},
      {"some steps", [](T x, O, auto) { return x.narrow(1, 1, 2); }},
      {"beside each other",
       [](T x, O, auto) {
         return cat({x, tanh(x)}, -1);
       }},
      {"twice along axis 0",
       [](T x, O, auto) {
         return cat({x, x * 2}, 0);
       }},
      {"the second half along axis 0", [](T x, O, auto) { return chunk(x, 2).back(); }},
      {"stacked",
       [](T x, O, auto) {
         return stack({x, x * 0.5}, 1);
       }},
      {"the first of two along the last axis", [](T x, O, auto) { return split(x, 2, -1)[0]; }},
      {"chosen channels",
       [](T x, O o, auto) {
         return index_select(x, -1, numbers_like(o.row, {3, 0, 0}));
       }},
      {"chosen samples",
       [](T x, O o, auto) {
         return index_select(x, 0, numbers_like(o.row, {0, 1}));
       }},
      {"chosen by the largest", [](T x, O, auto) { return take_along_dim(x, argmax(x, -1, true), -1); }},
      {"rows of the matrix", [](T x, O o, auto) { return embedding(argmax(x, -1), o.matrix); }},
      {"added to the largest", [](T x, O, auto) { return scatter_add(x, -1, argmax(x, -1, true), x); }},
      {"added by a parameter's numbers",
       [](T x, O o, auto) {
         return scatter_add(x, -1, numbers_like(o.row, {1, 1, 2, 0}).reshape({1, 1, 4}), x);
       }},
      {"one hot", [](T x, O, auto) { return cast(one_hot(argmax(x, 1), 12), DType::f64) * mean(x); }},
      {"inner products", [](T x, O, auto) { return matmul(x, transpose(x, -1, -2)); }},
      {"sorted along axis 1", [](T x, O, auto) { return sort(x, 1).values; }},
      {"sorted along axis 0", [](T x, O, auto) { return sort(x, 0, true).values; }},
      {"places along the last axis", [](T x, O, auto) { return x * cast(argsort(x), DType::f64); }},
      {"the largest two", [](T x, O, auto) { return topk(x, 2).values; }},
      {"padded",
       [](T x, O, auto) {
         return pad(x, {1, 2}, 0.5);
       }},
      {"padded along axis 0",
       [](T x, O, auto) {
         std::vector<std::int64_t> widths(2 * static_cast<std::size_t>(x.shape().dim()));
         if (!widths.empty()) widths.back() = 2;
         return pad(x, widths);
       }},
      {"product along axis 1", [](T x, O, auto) { return prod(x, 1); }},
      {"product along axis 0", [](T x, O, auto) { return prod(x, 0); }},
      {"product of all", [](T x, O, auto) { return prod(x); }},
      {"over the norm of the last axis", [](T x, O, auto) { return x / (norm(x, 2, -1, true) + 1.0); }},
      {"over the norm of all", [](T x, O, auto) { return x / (norm(x) + 1.0); }},
      {"without rows that have a large one", [](T x, O, auto) { return masked_fill(x, any(gt(x, 0.8), -1, true), 0); }},
      {"without columns that are small",
       [](T x, O, auto) { return masked_fill(x, lockstep::all(lt(x, 0.8), 0, true), 0); }},
      {"between row and a half",
       [](T x, O o, auto) { return where(logical_and(gt(x, o.row), logical_not(gt(x, 0.5))), x, 0.0); }},
      {"below row or above a half",
       [](T x, O o, auto) { return where(logical_or(lt(x, o.row), gt(x, 0.5)), x, o.row * 2); }},
      {"whole numbers of it", [](T x, O, auto) { return x + floor(x * 3) * 0.1 + remainder(x, 0.3); }},
      {"between tensors", [](T x, O o, auto) { return clamp(x, o.row - 1, o.row + 0.5); }},
      {"angles beside row", [](T x, O o, auto) { return atan2(x, o.row + 2); }},
      {"without the small ones", [](T x, O o, auto) { return masked_fill(x, lt(x, 0.1), mean(o.row)); }},
      {"as often as its axes",
       [](T x, O, auto) {
         return tile(x, {2, 1, 1});
       }},
      {"steps twice", [](T x, O, auto) { return repeat_interleave(x, 2, 1); }},
      {"samples twice", [](T x, O, auto) { return repeat_interleave(x, 2, 0); }},
      {"flipped", [](T x, O, auto) { return flip(x, -1); }},
      {"flipped along axis 0", [](T x, O, auto) { return flip(x, 0); }},
      {"rolled along axis 1", [](T x, O, auto) { return roll(x, 1, 1); }},
      {"rolled along axis 0", [](T x, O, auto) { return roll(x, 1, 0); }},
      {"axis 0 to the end", [](T x, O, auto) { return movedim(x, 0, -1); }},
      {"products by letters",
       [](T x, O o, auto) {
         return einsum("...c,dc->...d", {x, o.matrix});
       }},
      {"letters of samples",
       [](T x, O o, auto) {
         return einsum("n...c,c->n...", {x, o.row});
       }},
      {"letters over samples",
       [](T x, O, auto) {
         return einsum("n...,n...->...", {x, x});
       }},
      // Of one element, only the sign is left, and a gradient of 0 that rounding decides.
      {"normalized", [](T x, O, auto) { return normalize(x, 2, -1) + x * 0.1; }},
      {"angles to row", [](T x, O o, auto) { return cosine_similarity(x, o.row, -1); }},
      {"distances from the matrix", [](T x, O o, auto) { return cdist(x, o.matrix); }},
      {"overwritten at the largest", [](T x, O, auto) { return scatter(x, -1, argmax(x, -1, true), x * 2); }},
      {"largest by gather", [](T x, O, auto) { return gather(x, -1, argmax(x, -1, true)); }},
      {"added to row's places",
       [](T x, O o, auto) {
         return index_add(x, -1, numbers_like(o.row, {1, 1, 2, 0}), x, 0.5);
       }},
      {"products so far along axis 1", [](T x, O, auto) { return cumprod(x, 1); }},
      {"products so far along axis 0", [](T x, O, auto) { return cumprod(x, 0); }},
      {"largest so far along axis 1", [](T x, O, auto) { return cummax(x, 1).values; }},
      {"smallest so far along axis 0", [](T x, O, auto) { return cummin(x, 0).values; }},
      {"a copy plus a multiple", [](T x, O o, auto) { return add(clone(x), o.x, 0.5); }},
      {"median of axis 1", [](T x, O, auto) { return median(x, 1).values; }},
      {"median of all", [](T x, O, auto) { return median(x); }},
      {"standard deviation and mean",
       [](T x, O, auto) {
         const StdMean y = std_mean(x, -1, {.correction = 0, .keepdim = true});
         return (x - y.mean) / (y.std + 1);
       }},
      {"largest place of all", [](T x, O, auto) { return x * cast(max(argsort(x)), DType::f64); }},
      {"sum of places", [](T x, O, auto) { return x * cast(sum(argsort(x), 0, true), DType::f64) * 0.1; }},
      {"smallest place along axis 0", [](T x, O, auto) { return x * cast(amin(argsort(x), 0, true), DType::f64); }},
      {"gated", [](T x, O, auto) { return glu(x); }},
      {"gated along axis 0", [](T x, O, auto) { return glu(x, 0); }},
      {"hard limits", [](T x, O, auto) { return hardtanh(x, -0.5, 0.6) + hardswish(x) + softshrink(x, 0.2); }},
      {"slopes of the row", [](T x, O o, auto) { return prelu(transpose(x, 1, -1), o.row); }},
      {"mirrored",
       [](T x, O, auto) {
         return pad(x, {1, 2}, PadMode::reflect);
       }},
      {"around",
       [](T x, O, auto) {
         return pad(x, {0, 0, 1, 2}, PadMode::circular);
       }},
      {"the largest of windows",
       [](T x, O, auto) { return max_pool1d(x, {.kernel_size = 2, .stride = 1, .dilation = 2}); }},
      {"means of windows", [](T x, O, auto) { return adaptive_avg_pool1d(x, 3); }},
      {"largest of windows that cover it", [](T x, O, auto) { return adaptive_max_pool1d(x, 3); }},
      {"convolution of one size",
       [](T x, O o, auto) { return conv1d(x, unsqueeze(narrow(o.matrix, 1, 0, 3), -1), {}, {.padding = kSame}); }},
      {"convolution of volumes",
       [](T x, O o, auto) {
         const Tensor w = o.matrix.reshape({2, 1, 2, 2, 2});
         return conv3d(x.reshape({-1, 1, 3, 2, 2}), w, {}, {.padding = {1, 0, 1}});
       }},
      {"patches", [](T x, O, auto) { return unfold(unsqueeze(x, 1), {.kernel_size = 2, .padding = 1}); }},
      {"instances", [](T x, O, auto) { return instance_norm(x); }},
      {"loss of margins", [](T x, O, auto) { return x * triplet_margin_loss(x, tanh(x), x * x, {.swap = true}); }},
      {"loss of probabilities", [](T x, O, auto) { return x + binary_cross_entropy(sigmoid(x), sigmoid(x * 2)); }},
      {"loss of several labels",
       [](T x, O, auto) { return x + multilabel_soft_margin_loss(select(x, 1, 0), sigmoid(select(x, 1, 1))); }},
      {"ctc loss",
       [](T x, O, auto) {
         const Tensor labels = argmax(x, 2), lengths = select(labels, 1, 0) * 0.0 + 2.0;
         return x * ctc_loss(log_softmax(transpose(x, 0, 1)), labels, lengths + 1.0, lengths);
       }},
      {"lower triangle", [](T x, O, auto) { return tril(x) + triu(x, 1) * 0.5; }},
  };
  return all;
}

struct Result {
  std::vector<double> y, dx, dmatrix, drow;
  bool operator==(const Result&) const = default;
};

// The values and gradients of a program; empty if it is refused.
std::optional<Result> run(const std::vector<std::size_t>& program, Operands o, std::int64_t n,
                          std::string* error = nullptr) {
  for (Tensor* t : {&o.x, &o.matrix, &o.row}) *t = as_leaf(t->detach());
  try {
    Tensor y = o.x;
    for (std::size_t i : program) y = operations()[i].run(y, o, n);
    const Tensor loss = sum(square(y));
    loss.backward();
    const auto grad = [](const Tensor& t) { return t.grad().defined() ? values(t.grad()) : std::vector<double>(); };
    return Result{values(y), grad(o.x), grad(o.matrix), grad(o.row)};
  } catch (const Error& e) {
    if (error) *error = e.what();
    return {};
  }
}

class RulesTest : public ::testing::Test {
 protected:
  // Samples of each of V shards; the last ones may be missing.
  Operands cut(std::int64_t n, std::size_t shards, std::size_t devices) {
    std::vector<std::int64_t> rows(shards);
    std::vector<Slot> slots;
    const std::int64_t chunk = (n + static_cast<std::int64_t>(shards) - 1) / static_cast<std::int64_t>(shards);
    std::int64_t left = n;
    for (std::size_t s = 0; s < shards && left > 0; ++s) {
      rows[s] = std::min(chunk, left);
      left -= rows[s];
      slots.push_back({static_cast<int>(s), runtime_.devices()[s * devices / shards]});
    }
    const Operands o = whole(n);
    const std::vector<Device> some(runtime_.devices().begin(),
                                   runtime_.devices().begin() + static_cast<std::ptrdiff_t>(devices));
    const auto replicated = [&](const Tensor& t) {
      std::vector<Array> parts;
      for (Device device : some) parts.push_back(ops::to_device(t->array(), device));
      return replicated_tensor(std::move(parts));
    };
    return {scatter(o.x, std::make_shared<Placement>(rows, slots)), replicated(o.matrix), replicated(o.row)};
  }
  Operands whole(std::int64_t n) {
    Random random(static_cast<std::uint64_t>(n));
    const auto tensor = [&](const Shape& shape) {
      return Tensor(make_tensor(random.uniforms(shape.numel(), -1, 1), shape, runtime_.devices()[0], DType::f64));
    };
    return {tensor({n, kSteps, kChannels}), tensor({kChannels, kChannels}), tensor({kChannels})};
  }

  Runtime runtime_{{.cpu_devices = 3, .cores_per_device = 1, .threads_per_shard = 1, .reference_backend = true}};
};

std::string describe(const std::vector<std::size_t>& program) {
  std::string text;
  for (std::size_t i : program) text += (text.empty() ? "" : ", ") + operations()[i].name;
  return text;
}

TEST_F(RulesTest, RandomProgramsAreThoseOfAllSamplesTogether) {
  Random random(7);
  int allowed = 0, refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<std::size_t> program(static_cast<std::size_t>(random.integer(1, 5)));
    for (std::size_t& i : program) i = static_cast<std::size_t>(random.integer(0, std::ssize(operations()) - 1));
    SCOPED_TRACE(describe(program));
    // 7 samples: no number of steps or channels, so that shapes tell the axes apart.
    const std::int64_t n = 7;
    const std::optional<Result> expected = run(program, whole(n), n);
    std::string error, error_of_several;
    const std::optional<Result> one = run(program, cut(n, 1, 1), n, &error);
    const std::optional<Result> several = run(program, cut(n, 4, 3), n, &error_of_several),
                                other = run(program, cut(n, 5, 2), n);
    // One device refuses what several refuse.
    EXPECT_EQ(one.has_value(), several.has_value()) << error;
    EXPECT_EQ(one.has_value(), other.has_value()) << error;
    if (!one || !several || !other) {
      // Without a cut the program runs, so only the cut is the reason, and the error says what to do about it.
      if (expected) {
        ++refused;
        for (const std::string& e : {error, error_of_several}) {
          EXPECT_TRUE(e.find("gather()") != std::string::npos || e.find("per_shard()") != std::string::npos ||
                      e.find("split_and_load()") != std::string::npos)
              << e;
        }
      }
      continue;
    }
    ++allowed;
    ASSERT_TRUE(expected.has_value());
    // The same shards on other devices: the same bits.
    EXPECT_EQ(run(program, cut(n, 4, 1), n), several);
    // One shard has the bits of no cut.
    EXPECT_EQ(one, expected);
    for (const Result* found : {&*one, &*several, &*other}) {
      EXPECT_LT(distance(found->y, expected->y), 1e-12);
      EXPECT_LT(distance(found->dx, expected->dx), 1e-12);
      EXPECT_LT(distance(found->dmatrix, expected->dmatrix), 1e-12);
      EXPECT_LT(distance(found->drow, expected->drow), 1e-12);
    }
  }
  // Neither is rare.
  EXPECT_GT(allowed, 80);
  EXPECT_GT(refused, 80) << refused;
}

// One sample is no exception. (Where a reshape could mean either of two axes, it means the first one.)
TEST_F(RulesTest, OneSampleIsRefusedWhatSeveralAre) {
  for (std::size_t i = 0; i < operations().size(); ++i) {
    SCOPED_TRACE(operations()[i].name);
    std::string error;
    const bool several = run({i}, cut(7, 4, 3), 7, &error).has_value();
    EXPECT_EQ(run({i}, cut(1, 1, 1), 1).has_value(), several) << error;
    EXPECT_EQ(run({i}, cut(1, 4, 3), 1).has_value(), several) << error;
  }
}

TEST_F(RulesTest, ErrorsSayWhatToDo) {
  const Operands o = cut(4, 2, 2);
  const Tensor rows = o.x.reshape({4 * kSteps, kChannels});
  EXPECT_ERROR(o.x.reshape({6, 8}), "gather() puts them together, per_shard() computes each shard alone");
  EXPECT_ERROR(matmul(unsqueeze(transpose(rows), 0), rows), "and the product would sum over them");
  EXPECT_ERROR(o.x.narrow(0, 0, 2), "narrow: the samples of [4, 3, 4] f64 on [cpu:0, cpu:1] are on axis 0");
  EXPECT_ERROR(o.x + whole(4).x,
               "is cut over the batch, but [4, 3, 4] f64 on cpu:0 beside it is not: expected extent 1 on its "
               "axis 0, or split_and_load() of both");
  EXPECT_ERROR(o.x + cut(4, 4, 2).x, "are cut differently, expected tensors of one batch");
  EXPECT_ERROR(softmax(transpose(rows)), "softmax: the samples of [4, 12]");
  EXPECT_ERROR(o.x.select(0, 1), "select: the samples of [4, 3, 4] f64 on [cpu:0, cpu:1] are on axis 0");
  EXPECT_ERROR(cumsum(o.x, 0), "and it would sum over them: gather() puts them together");
  EXPECT_ERROR(argmax(o.x), "and it would choose among them");
  EXPECT_ERROR(index_select(o.x, 0, numbers_like(o.row, {0})), "and it would choose among them");
  EXPECT_ERROR(chunk(o.x, 2), "and do not fall into 2 equal parts");
  EXPECT_ERROR(triu(rows), "and it would leave out some of them");
  EXPECT_ERROR(expand(o.x, {2, 3, 4}), "which cannot be repeated");
  EXPECT_ERROR(matmul(o.x, whole(4).x), "is cut over the batch, but [4, 3, 4] f64 on cpu:0 beside it is not");
  EXPECT_ERROR(masked_select(o.x, gt(o.x, 0)), "and the size of the result would depend on all of them: gather()");
  EXPECT_ERROR(nonzero(o.x), "nonzero: the samples of [4, 3, 4] f64");
  EXPECT_ERROR(unique(o.x), "unique: the samples of [4, 3, 4] f64");
  EXPECT_ERROR(einsum("nij,nij->j", {o.x, o.x}), "and the product would sum over them");
  EXPECT_ERROR(flip(o.x, 0), "and it would change their order: gather()");
  EXPECT_ERROR(o.x.to(runtime_.devices()[0]), "is cut over the batch, expected it in one piece: gather() it");
  const Tensor on_one_device = cut(4, 2, 1).x;
  EXPECT_TRUE(on_one_device.to(runtime_.devices()[0]).is_same(on_one_device));
}

TEST_F(RulesTest, ALeafMayBeCutWholeOrReplicated) {
  const auto x = [&] { return as_leaf(cut(5, 3, 2).x); };
  Tensor a = x();
  Tensor w = as_leaf(make_tensor({1, 2, 3, 4}, {4}, runtime_.devices()[2], DType::f64));
  sum(a * w).backward();
  // The whole leaf lies on a device that computes no shard.
  EXPECT_EQ(w.grad().device(), runtime_.devices()[2]);
  EXPECT_EQ(a.grad().shape(), (Shape{5, kSteps, kChannels}));
  const std::vector<double> values_of_x = values(a);
  std::vector<double> expected(4);
  for (std::size_t i = 0; i < values_of_x.size(); ++i) expected[i % 4] += values_of_x[i];
  EXPECT_LT(distance(values(w.grad()), expected), 1e-12);
  // Twice adds up.
  sum(a * w).backward();
  for (double& v : expected) v *= 2;
  EXPECT_LT(distance(values(w.grad()), expected), 1e-12);
}

TEST_F(RulesTest, PerShardIsTheWayOut) {
  const Operands o = cut(7, 3, 2);
  // Softmax over the samples of each shard.
  const auto f = [](const Tensor& x) { return transpose(softmax(transpose(flatten(x, 1)))); };
  EXPECT_ERROR(f(o.x), "softmax");
  Tensor x = as_leaf(o.x.detach());
  const Tensor y = per_shard(f, x);
  EXPECT_EQ(y.shape(), (Shape{7, kSteps * kChannels}));
  sum(square(y)).backward();
  std::vector<double> expected, gradient;
  for (const Tensor& shard : o.x.shards()) {
    Tensor leaf = as_leaf(shard);
    const Tensor part = f(leaf);
    sum(square(part)).backward();
    for (double v : values(part)) expected.push_back(v);
    for (double v : values(leaf.grad())) gradient.push_back(v);
  }
  EXPECT_LT(distance(values(y), expected), 1e-12);
  EXPECT_LT(distance(values(x.grad()), gradient), 1e-12);
}

TEST_F(RulesTest, AFailedBackwardLeavesNothing) {
  struct Broken : Function {
    Tensor forward(const Tensor& x) { return x * 1; }
    Tensor backward(const Tensor&) { fail("no gradient today"); }
  };
  Tensor w = as_leaf(make_tensor({1, 2, 3, 4}, {4}, runtime_.devices()[0], DType::f64));
  const Operands o = cut(5, 3, 2);
  // The later sum's gradient comes first, then the error.
  const Tensor x = as_leaf(o.x.detach());
  sum(o.x * w).backward();
  const std::vector<double> before = values(w.grad());
  const Tensor broken = sum(apply<Broken>(x)), later = sum(o.x * w);
  EXPECT_ERROR((broken + later).backward(), "no gradient today");
  EXPECT_EQ(values(w.grad()), before);
}

}  // namespace
}  // namespace lockstep::testing
