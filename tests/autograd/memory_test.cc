// Which results share memory with their operands: those of views, and no others.
#include <gtest/gtest.h>

#include <set>

#include "lockstep/autograd/index_list.h"
#include "lockstep/autograd/lift.h"
#include "tests/autograd/gradient_testing.h"

namespace lockstep::testing {
namespace {

struct Call {
  std::string name;
  std::function<Tensor(const Tensor&)> f;
};

// Of x [3, 1], in any type: with arguments that leave nothing to compute.
std::vector<Call> calls_without_work(DType dtype) {
  const auto zeros_of = [](const Tensor& x) { return full({1, 1}, 0, like(x, DType::i64)); };
  std::vector<Call> calls{
      {"+ 0", [](const Tensor& x) { return x + 0.0; }},
      {"- 0", [](const Tensor& x) { return x - 0.0; }},
      {"* 1", [](const Tensor& x) { return x * 1.0; }},
      {"add", [](const Tensor& x) { return add(x, 0.0, 3); }},
      {"abs", abs},
      {"clone", clone},
      {"floor", floor},
      {"ceil", ceil},
      {"round", round},
      {"trunc", trunc},
      {"nan_to_num", [](const Tensor& x) { return nan_to_num(x); }},
      {"floor division by 1", [](const Tensor& x) { return div(x, 1.0, {.rounding_mode = Rounding::floor}); }},
      {"clamp", [](const Tensor& x) { return clamp(x, x, x); }},
      {"maximum", [](const Tensor& x) { return maximum(x, x); }},
      {"where", [](const Tensor& x) { return where(eq(x, x), x, x); }},
      {"masked_fill", [](const Tensor& x) { return masked_fill(x, ne(x, x), 0.0); }},
      {"repeat",
       [](const Tensor& x) {
         return repeat(x, {1, 1});
       }},
      {"repeat with another axis",
       [](const Tensor& x) {
         return repeat(x, {1, 1, 1});
       }},
      {"tile", [](const Tensor& x) { return tile(x, {1}); }},
      {"repeat_interleave", [](const Tensor& x) { return repeat_interleave(x, 1); }},
      {"repeat_interleave of an axis", [](const Tensor& x) { return repeat_interleave(x, 1, 0); }},
      {"flip", [](const Tensor& x) { return flip(x, {1}); }},
      {"roll", [](const Tensor& x) { return roll(x, 0); }},
      {"roll of an axis", [](const Tensor& x) { return roll(x, -6, 0); }},
      {"roll of no axis", [](const Tensor& x) { return roll(x, {}, {}); }},
      {"roll of axes",
       [](const Tensor& x) {
         return roll(x, {3, 1}, {0, 1});
       }},
      {"roll of a scalar", [](const Tensor& x) { return roll(select(select(x, 0, 0), 0, 0), 1); }},
      {"pad",
       [](const Tensor& x) {
         return pad(x, {0, 0});
       }},
      {"pad with nothing", [](const Tensor& x) { return pad(x, {}); }},
      {"pad with less",
       [](const Tensor& x) {
         return pad(x, {0, 0, -1, 0});
       }},
      {"pad by reflection",
       [](const Tensor& x) {
         return pad(x, {0, 0}, PadMode::reflect);
       }},
      {"pad in a circle",
       [](const Tensor& x) {
         return pad(x, {0, 0}, PadMode::circular);
       }},
      {"prod", [](const Tensor& x) { return prod(x, 1); }},
      {"prod that keeps the axis", [](const Tensor& x) { return prod(x, 1, true); }},
      {"prod of all", [](const Tensor& x) { return prod(narrow(x, 0, 1, 1)); }},
      {"sum", [](const Tensor& x) { return sum(x, 1); }},
      {"sum of all", [](const Tensor& x) { return sum(narrow(x, 0, 1, 1)); }},
      {"sum_to_size", [](const Tensor& x) { return sum(x, 1, true); }},
      {"amax", [](const Tensor& x) { return amax(x, 1, true); }},
      {"amin", [](const Tensor& x) { return amin(x, 1, true); }},
      {"max", [](const Tensor& x) { return max(x, 1).values; }},
      {"min", [](const Tensor& x) { return min(x, 1, true).values; }},
      {"max of a scalar", [](const Tensor& x) { return max(select(select(x, 0, 0), 0, 0), 0).values; }},
      {"median", [](const Tensor& x) { return median(x, 1).values; }},
      {"cumsum", [](const Tensor& x) { return cumsum(x, 1); }},
      {"cumprod", [](const Tensor& x) { return cumprod(x, 1); }},
      {"cummax", [](const Tensor& x) { return cummax(x, 1).values; }},
      {"sort", [](const Tensor& x) { return sort(x, 1).values; }},
      {"topk", [](const Tensor& x) { return topk(x, 1, 1).values; }},
      {"cat", [](const Tensor& x) { return cat({x}); }},
      {"cat with nothing",
       [](const Tensor& x) {
         return cat({x, narrow(x, 0, 0, 0)});
       }},
      {"concatenate", [](const Tensor& x) { return concatenate(std::vector{x}); }},
      {"stack", [](const Tensor& x) { return stack({x}); }},
      {"take_along_dim", [=](const Tensor& x) { return take_along_dim(x, zeros_of(x), 1); }},
      {"gather", [=](const Tensor& x) { return gather(x, 1, zeros_of(x)); }},
      {"index_select", [=](const Tensor& x) { return index_select(x, 1, zeros_of(x).reshape({1})); }},
      {"index", [](const Tensor& x) { return x[arange(3, {.device = x.device()})]; }},
      {"index_put of nothing",
       [](const Tensor& x) {
         return index_put(x, std::vector<TensorIndex>{Slice(0, 0)}, full({}, 1, like(x, x.dtype())));
       }},
      {"scatter of nothing",
       [](const Tensor& x) {
         return scatter(x, 0, full({0, 1}, 0, like(x, DType::i64)), narrow(x, 0, 0, 0));
       }},
      {"masked_select", [](const Tensor& x) { return masked_select(x, eq(x, x)); }},
      {"unique", [](const Tensor& x) { return unique(x).values; }},
      {"einsum", [](const Tensor& x) { return einsum("ij->ij", {x}); }},
      {"einsum with a diagonal", [](const Tensor& x) { return einsum("ii->i", {narrow(x, 0, 0, 1)}); }},
      {"tril", [](const Tensor& x) { return tril(x, 9); }},
      {"triu", [](const Tensor& x) { return triu(x, -9); }},
      {"pixel_shuffle",
       [](const Tensor& x) {
         return pixel_shuffle(x.reshape({1, 3, 1}), 1);
       }},
      {"pixel_unshuffle",
       [](const Tensor& x) {
         return pixel_unshuffle(x.reshape({1, 3, 1}), 1);
       }},
  };
  if (!is_floating(dtype)) return calls;
  const auto image = [](const Tensor& x) { return x.reshape({1, 1, 3, 1}); };
  const std::vector<Call> more{
      {"/ 1", [](const Tensor& x) { return x / 1.0; }},
      {"pow", [](const Tensor& x) { return pow(x, 1); }},
      {"clamp without effect", [](const Tensor& x) { return clamp(x, -100); }},
      {"mean", [](const Tensor& x) { return mean(x, 1); }},
      {"mean of all", [](const Tensor& x) { return mean(narrow(x, 0, 1, 1)); }},
      {"logsumexp", [](const Tensor& x) { return logsumexp(x, 1); }},
      {"dropout", [](const Tensor& x) { return dropout(x, 0); }},
      {"interpolate",
       [=](const Tensor& x) {
         return interpolate(image(x), {.size = {{3, 1}}});
       }},
      {"interpolate by 1",
       [=](const Tensor& x) { return interpolate(image(x), {.scale_factor = 1, .mode = Interpolation::bicubic}); }},
      {"adaptive_avg_pool2d",
       [=](const Tensor& x) {
         return adaptive_avg_pool2d(image(x), {3, 1});
       }},
      {"adaptive_max_pool2d",
       [=](const Tensor& x) {
         return adaptive_max_pool2d(image(x), {3, 1});
       }},
      {"adaptive_avg_pool1d", [](const Tensor& x) { return adaptive_avg_pool1d(x, 1); }},
      {"avg_pool2d",
       [=](const Tensor& x) {
         return avg_pool2d(image(x), {.kernel_size = {1, 1}});
       }},
      {"max_pool2d",
       [=](const Tensor& x) {
         return max_pool2d(image(x), {.kernel_size = {1, 1}});
       }},
      {"unfold",
       [=](const Tensor& x) {
         return unfold(image(x), {.kernel_size = {1, 1}});
       }},
      {"fold",
       [=](const Tensor& x) {
         return fold(x.reshape({1, 3}), {3, 1}, {.kernel_size = {1, 1}});
       }},
      {"mse_loss", [](const Tensor& x) { return mse_loss(x, x.detach(), {.reduction = Reduction::none}); }},
      {"softmax", [](const Tensor& x) { return softmax(x, 0); }},
      {"relu", relu},
      {"threshold", [](const Tensor& x) { return threshold(x, -100, 0); }},
      {"normalize", [](const Tensor& x) { return normalize(x, 2, 0); }},
      {"linear",
       [](const Tensor& x) {
         return linear(x, full({1, 1}, 1, like(x, x.dtype())));
       }},
      {"matmul",
       [](const Tensor& x) {
         return matmul(x, full({1, 1}, 1, like(x, x.dtype())));
       }},
  };
  calls.insert(calls.end(), more.begin(), more.end());
  return calls;
}

// Whether a write to the result changes x.
bool reaches(const Tensor& result, const Tensor& x) {
  const NoGradGuard no_grad;
  const std::vector<double> before = values(x);
  result.detach().fill_(before[0] == 77 ? 78 : 77);
  return values(x) != before;
}

class MemoryTest : public ::testing::Test {
 protected:
  Runtime runtime_{{.cpu_devices = 1, .cores_per_device = 1, .threads_per_shard = 1}};
  Device device_ = runtime_.devices()[0];
};

TEST_F(MemoryTest, ResultsWithoutWorkHaveMemoryOfTheirOwn) {
  for (const Device place : {device_, kHost}) {
    for (const DType dtype : {DType::f32, DType::f64, DType::i64, DType::u8}) {
      for (const auto& [name, f] : calls_without_work(dtype)) {
        for (const bool leaf : {false, true}) {
          if (leaf && !is_floating(dtype)) continue;
          SCOPED_TRACE(fmt::format("{} {} {} {}", name, lockstep::name(dtype), place, leaf));
          const Tensor x = Tensor::from({3.0, 1.0, 2.0}, {3, 1}, {.dtype = dtype, .device = place});
          const Tensor input = leaf ? as_leaf(x.detach()) : x;
          try {
            const Tensor y = f(input);
            EXPECT_FALSE(shares_memory(y, x));
            EXPECT_FALSE(reaches(y, x));
          } catch (const Error& error) {
            // Some functions have no whole numbers, or need a device.
            EXPECT_TRUE(dtype == DType::u8 || place.is_host()) << error.what();
          }
        }
      }
    }
  }
}

TEST_F(MemoryTest, ResultsOfCutTensorsHaveMemoryOfTheirOwn) {
  const auto at = std::make_shared<Placement>(std::vector{std::int64_t{2}, std::int64_t{1}},
                                              std::vector<Slot>{{0, device_}, {1, device_}});
  for (const DType dtype : {DType::f32, DType::i64}) {
    for (const auto& [name, f] : calls_without_work(dtype)) {
      SCOPED_TRACE(fmt::format("{} {}", name, lockstep::name(dtype)));
      const Tensor x = scatter(Tensor::from({3.0, 1.0, 2.0}, {3, 1}, {.dtype = dtype}), at);
      try {
        const Tensor y = f(x);
        EXPECT_FALSE(shares_memory(y, x));
      } catch (const Error&) {  // functions across the batch
      }
    }
  }
}

TEST_F(MemoryTest, ViewsShareTheirMemory) {
  const Tensor x = Tensor::from({3.0, 1.0, 2.0}, {3, 1}, {.device = device_});
  for (const auto& [name, f] : std::vector<Call>{
           {"reshape",
            [](const Tensor& t) {
              return t.reshape({1, 3});
            }},
           {"view",
            [](const Tensor& t) {
              return t.view({1, 3});
            }},
           {"flatten", [](const Tensor& t) { return flatten(t); }},
           {"unflatten",
            [](const Tensor& t) {
              return unflatten(t, 0, {3, 1});
            }},
           {"squeeze", [](const Tensor& t) { return squeeze(t); }},
           {"unsqueeze", [](const Tensor& t) { return unsqueeze(t, 0); }},
           {"narrow", [](const Tensor& t) { return t.narrow(0, 1, 2); }},
           {"select", [](const Tensor& t) { return t.select(0, 1); }},
           {"slice", [](const Tensor& t) { return slice(t, 0, 1, 2); }},
           {"expand",
            [](const Tensor& t) {
              return expand(t, {3, 1});
            }},
           {"detach", [](const Tensor& t) { return t.detach(); }},
           {"cast", [](const Tensor& t) { return cast(t, t.dtype()); }},
           {"contiguous", [](const Tensor& t) { return t.contiguous(); }},
           {"to", [](const Tensor& t) { return t.to(t.device()); }},
           {"unbind", [](const Tensor& t) { return unbind(t)[1]; }},
           {"chunk", [](const Tensor& t) { return chunk(t, 3)[1]; }},
       }) {
    EXPECT_TRUE(shares_memory(f(x), x)) << name;
  }
}

// With random arguments.
TEST_F(MemoryTest, DifferentiableFunctionsHaveResultsOfTheirOwn) {
  const std::set<std::string> views{"Reshape", "Flatten", "Expand", "Cast"};
  for (const Differentiable& d : differentiable_functions()) {
    for (int round = 0; round < 3 && !views.contains(d.name); ++round) {
      SCOPED_TRACE(fmt::format("{} {}", d.name, round));
      Random random(static_cast<std::uint64_t>(round));
      const Problem problem = d.make(random);
      const Values at = random_values(problem, random);
      std::vector<Tensor> inputs;
      for (std::size_t i = 0; i < at.size(); ++i) {
        inputs.push_back(make_tensor(at[i], problem.inputs[i].shape, device_, DType::f32));
      }
      const Tensor y = problem.function(inputs);
      for (const Tensor& x : inputs) EXPECT_FALSE(shares_memory(y, x));
    }
  }
}

}  // namespace
}  // namespace lockstep::testing
